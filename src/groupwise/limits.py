"""How much a foreign file may hold and take: the one place for the largest row, table, text,
expansion, time and memory.

A file that goes beyond is read as far as it may, with a note, or refused with one sentence. Each
number is far above what a real log needs and far below what a machine has: at the limits a reader
holds about two gigabytes.
"""

LARGEST_WHOLE = 1 << 28  # bytes of a file that cannot be streamed: JSON, the pickle of a dump
LARGEST_BLOCKS = 1 << 30  # bytes of a W&B file
LARGEST_SETTINGS = 1 << 24  # bytes of a file of settings
LARGEST_YAML = 1 << 17  # characters of YAML, which takes a second for each hundred thousand
LARGEST_VALUE = 1e100  # of a metric in size: the square of a larger one may be no number any more
LARGEST_COUNT = 2**53  # of a step or a setting that counts: beyond it not every whole number is one
MOST_KEYS = 2000  # columns of a log
MOST_CELLS = 1 << 26  # rows times columns of a table, missing ones included
LONGEST_LINE = 1 << 26  # characters of one line
LONGEST_CELL = 1 << 20  # characters of one cell between commas
MOST_TEXT = 1 << 28  # characters of prompts that are kept as they are, and of all texts of one dump
MOST_HELD = 1 << 25
# bytes of dumps of rollouts whose texts are held in memory; those of larger ones are read where
# somebody looks
LARGEST_RECORD = 1 << 26  # bytes of one record of an event file
LARGEST_EVENT_TEXT = 1 << 22  # bytes of a text in an event file, where settings are
MOST_VALUES = 2_000_000  # values of a dump when all that it shares is unfolded
MOST_SETTINGS = 100_000  # of one file
MOST_ALIASES = 20  # of YAML, each of which unfolds what it names


def most_keys(rows: int) -> int:
    """Return how many columns a table of so many rows may have."""
    return min(MOST_KEYS, MOST_CELLS // max(1, rows))


def left_out(cells: int) -> str:
    """Return the note on cells of keys that were too many."""
    return (
        f"the log has more than {MOST_KEYS:,} keys or {MOST_CELLS:,} cells: {cells:,} cells of the "
        "later keys left out"
    )


def seconds_for(size: int) -> float:
    """Return the CPU seconds that a database of so many bytes may take."""
    return 10 + size / 1e6
