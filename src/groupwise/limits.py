"""How much a foreign file may hold and take: the one place for the largest row, table, text, expansion, time and memory.

A file that goes beyond is read as far as it may, with a note, or refused with one sentence. Each number is far above what a real log
needs and far below what a machine has: at the limits a reader holds about two gigabytes.
"""

LARGEST_WHOLE = 1 << 28  # bytes of a file that cannot be streamed: JSON, the pickle of a dump
LARGEST_BLOCKS = 1 << 30  # bytes of a W&B file
LARGEST_SETTINGS = 1 << 24  # bytes of a file of settings
LARGEST_YAML = 1 << 17  # characters of YAML, which takes a second for each hundred thousand
LARGEST_COUNT = 2**53  # of a step or a setting that counts: beyond it not every whole number is one
MOST_KEYS = 2000  # columns of a log
MOST_CELLS = 1 << 26  # rows times columns of a table, missing ones included
LONGEST_LINE = 1 << 26  # characters of one line
LONGEST_FIRST = 1 << 23  # characters of a line from which a format is told
LONGEST_CELL = 1 << 20  # characters of one cell between commas
MOST_TEXT = 1 << 28  # bytes of completions whose texts are kept
MOST_VALUES = 2_000_000  # values of a dump when all that it shares is unfolded


def seconds_for(size: int) -> float:
    """Return the CPU seconds that a database of so many bytes may take."""
    return 10 + size / 1e6
