"""Bytes of a log as text and JSON, streamed, and the tracebacks in them: what is no readable text
is refused with one sentence.
"""

import ast
import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import IO, Any, AnyStr, TextIO, TypeGuard

import numpy as np

from groupwise import parsing
from groupwise.errors import NothingYetError, UnreadableRunError
from groupwise.files import first_bytes, forms, table_rows
from groupwise.parsing import JsonObject, TooManyValuesError, check_values, parse_json
from groupwise.plain import frozen
from groupwise.wording import count

Notes = list[str]  # what a reader says of a log
PrintedRow = dict[Any, Any]
HEAD_BYTES = 1 << 16
DAMAGED_LINES = (
    "line is not a complete JSON object and was",
    "lines are not complete JSON objects and were",
)
ESCAPE, _SCALAR, _NAN, _CONTROL = forms("escape scalar nan control")
_BLANK, _DENSE = re.compile(rb"(?<!\s)\s{1024,}"), 8  # looked for where lines are that short
_FIRST_TEXT = 1 << 20
_BLOCK = 1 << 22
_LEAST_CUT = 1 << 10
_LONGEST_PATH = 160  # characters in a message
_FOUR_BYTES = [bytes([lead]) for lead in range(0xF0, 0xF5)]  # begin the characters that take four

_MAGIC = tuple(
    (bytes.fromhex(row["start"]), row["what"]) for row in table_rows("readers/magic.tsv")
)


@frozen
class Peek:
    """The first bytes of a file, and what they say."""

    path: Path  # of the file
    size: int  # of it, bytes
    head: bytes  # its first bytes
    encoding: str  # of its text
    text: str  # the head decoded, without byte-order mark and leading blanks
    binary: str  # what it is if it is no text, else ""


def peek(path: Path) -> Peek:
    """Return what the first bytes of a file say."""
    try:
        head, size = first_bytes(path, HEAD_BYTES), path.stat().st_size
    except (OSError, ValueError) as error:
        kind = NothingYetError if isinstance(error, FileNotFoundError) else UnreadableRunError
        raise kind(_why_not(path, error)) from None
    if head is None:
        raise UnreadableRunError(
            f"expected a log file or a run folder, got {shown(path)}, which is neither: give the "
            "path of one"
        )
    if not head.strip() and len(head) < size:
        with path.open("rb") as file:
            parts = iter(partial(file.read, _FIRST_TEXT), b"")
            head = next(filter(bytes.strip, parts), b"").lstrip() + file.read(HEAD_BYTES)
    encoding = _encoding(head)
    text = head.decode(encoding, errors="replace").lstrip("\ufeff").lstrip()
    if not text:
        raise NothingYetError(
            f"expected a log, got {shown(path)}, which is empty: nothing has been written to it yet"
        )
    return Peek(path, size, head, encoding, text, _binary(path, head, text, encoding))


def inside(folder: Path, most: int) -> list[Path]:
    """Return what stands right inside a folder, by name."""
    try:
        return sorted(islice(folder.iterdir(), most))
    except OSError as error:
        reason = error.strerror or str(error)
        raise UnreadableRunError(
            f"expected a folder that can be listed, got {reason} for {shown(folder)}: check its "
            "path and mode"
        ) from None


def folders_in(folder: Path, most: int) -> list[Path]:
    """Return the folders right inside one, by name, but for hidden ones."""
    return [path for path in inside(folder, most) if path.is_dir() and path.name[0] != "."]


def start_of(seen: Peek, size: int) -> bytes:
    """Return the first bytes of a text as UTF-8: those of UTF-16, as PowerShell redirects, are
    decoded first.
    """
    if size <= len(seen.head):
        content = seen.head[:size]
    else:
        with seen.path.open("rb") as file:
            content = file.read(size)
    return (
        content.decode(seen.encoding, errors="replace").encode(errors="replace")
        if is_wide(seen.encoding)
        else content
    )


def shown(path: Path) -> str:
    """Return the path for a message as it was given, a whole or long one's last parts alone,
    without control characters.
    """
    cut = path.is_absolute() or len(str(path)) > _LONGEST_PATH
    short = "/".join(path.parts[-2:]) if cut else str(path)
    return "".join(character if character.isprintable() else "?" for character in short)[
        :_LONGEST_PATH
    ]


def _why_not(path: Path, error: Exception) -> str:
    """Return the sentence for a file that the system does not hand over."""
    if isinstance(error, FileNotFoundError):
        address = str(path).startswith(("http:", "https:"))
        hint = "export the run: only files are read" if address else "check the path"
        return (
            f"expected a log file or a run folder, got {shown(path)}, which does not exist: {hint}"
        )
    if isinstance(error, PermissionError):
        return (
            f"expected a file that can be read, got no permission for {shown(path)}: change its "
            "mode or its owner"
        )
    reason = getattr(error, "strerror", None) or str(error)
    return f"expected a file that can be read, got {reason} for {shown(path)}: check the path"


def is_wide(encoding: str) -> bool:
    """Return whether a line feed cannot be found in the bytes of a text: in UTF-16, marked or
    not.
    """
    return encoding.startswith("utf-16")


def _encoding(head: bytes) -> str:
    """Return the encoding of a text from its first bytes."""
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return "utf-16"
    for order, high in (("le", 1), ("be", 0)):  # without a mark: most bytes of one parity are 0
        zeros, others = head[high::2].count(0), head[1 - high :: 2].count(0)
        if zeros * 4 > len(head) and others * 20 < zeros:
            return f"utf-16-{order}"
    for cut in range(min(4, len(head))):
        try:
            head[: len(head) - cut].decode("utf-8")
        except UnicodeDecodeError:
            continue
        return "utf-8-sig" if head.startswith(b"\xef\xbb\xbf") else "utf-8"
    return "latin-1"


def _binary(path: Path, head: bytes, text: str, encoding: str) -> str:
    """Return what a binary file is, or "" for a text."""
    if "tfevents" in path.name:
        return (
            "a TensorBoard event file that is damaged at its start: copy it again, or export its "
            "scalars as CSV"
        )
    for magic, name in _MAGIC:
        if head.startswith(magic):
            return name
    control = len(_CONTROL.findall(text[:4096]))
    # A few NUL bytes in a text, as NCCL prints them, are left out; in a text of no known encoding
    # they are those of a binary file.
    if (encoding == "latin-1" and b"\0" in head) or control * 20 > len(text[:4096]):
        return "a binary file: give a text log, a Parquet table or a run folder"
    return ""


def open_text(path: Path, encoding: str) -> TextIO:
    """Open a text file for reading; bytes that are no text become U+FFFD."""
    return path.open(encoding=encoding, errors="replace")


def bare(text: str) -> str:
    """Return a text with the numbers within what NumPy or PyTorch print around them:
    np.float64(0.5) is 0.5.
    """
    return _SCALAR.sub(_inside, text) if "(" in text else text


def parse_row(text: str) -> PrintedRow | None:
    """Return the row that a Python literal holds, or None."""
    plain = bare(text)
    if '"' not in plain and "\\" not in plain:
        try:
            # ten times as fast as literal_eval, which takes what is no JSON, such as None
            row = json.loads(plain.replace("'", '"'))
        except ValueError:
            pass
        else:
            return row if isinstance(row, dict) else None
    try:
        row = ast.literal_eval(_NAN.sub("None", plain))
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return None
    return row if isinstance(row, dict) else None


def number_of(text: str) -> float | None:
    """Return the number that a printed value holds; None for a text."""
    try:
        return float(bare(text))
    except ValueError:
        return None


def _inside(match: re.Match[str]) -> str:
    """Return the number of a printed scalar."""
    return next((group for group in match.groups() if group), "None")


_RAY = re.compile(r"(?:\[\d{1,3}m)?\(([\w.:<>\- ]{1,80}pid=\d+[^()]{0,80})\)(?:\[0m)? ?")


def sender_of(line: str) -> tuple[str, str]:
    """Return the process that Ray names before a line, "" for none, and the rest of the line."""
    prefix = _RAY.match(line)
    return (prefix[1], line[prefix.end() :]) if prefix else ("", line)


def is_cut(line: str) -> bool:
    """Return whether a line is as long as what keeps lines lets them be: a power of two from
    1,024 characters on, without its end.
    """
    length = len(line.rstrip("\r\n"))
    return length >= _LEAST_CUT and length & (length - 1) == 0


def lines_of(text: str) -> list[str]:
    r"""Split as a file opened for text does, line feeds kept: `str.splitlines` also splits at
    characters that a JSON text may hold.
    """
    return [*io.StringIO(text, newline=None)]


def first_lines(seen: Peek, most: int) -> list[str]:
    """Return the first lines of a text: of those that are longer than what was peeked at, more
    is read.
    """
    lines = lines_of(seen.text)
    if len(seen.head) == seen.size or len(lines) > most:
        return lines[:most]
    with open_text(seen.path, seen.encoding) as file:
        return [line.lstrip("\ufeff") for line in islice(_beginning(file), most)]


def _beginning(file: TextIO) -> Iterator[str]:
    """Yield the first megabyte of lines behind blank ones."""
    read = 0
    while read < _FIRST_TEXT and (line := file.readline(parsing.LONGEST_LINE)):
        if read or not line.isspace():
            read += len(line)
            yield line


def noted(number: int, singular: str, plural: str, what: str = "left out") -> Notes:
    """Return the note on so many things, none where there is none of them: "3 lines are damaged
    and were" and what became of them.
    """
    return [f"{count(number, singular, plural)} {what}"] if number else []


class Blocks:
    """The lines of a text as UTF-8, some megabytes of whole ones at a time; one that is too long
    is left out and counted.
    """

    too_long = 0

    def __init__(self, seen: Peek, start: int = 0) -> None:
        self._seen, self.start = seen, start  # where the present lines begin in the file

    def __iter__(self) -> Iterator[bytes]:
        """Yield whole lines, each with its line feed where it has one."""
        encoding = self._seen.encoding
        with open_text(self._seen.path, encoding) as file:
            wide = is_wide(encoding)  # in whose bytes a line feed cannot be found
            source: IO[Any] = file if wide else file.buffer
            source.seek(self.start)
            for self.start, read in _pieces(source, parsing.LONGEST_LINE // (1 + wide) + 1):
                piece = in_utf8(read.encode(), "utf-8") if wide else in_utf8(read, encoding)
                yield (
                    piece
                    if len(piece) <= parsing.LONGEST_LINE // 2
                    else b"".join(self._short(piece.split(b"\n")))
                )

    def lines(self) -> Iterator[str]:
        """Yield the lines as texts."""
        for block in self:
            yield from lines_in(block)

    def _short(self, lines: Sequence[bytes]) -> Iterator[bytes]:
        """Yield the lines that are not too long, and count the others: where a character takes
        four bytes, all of the line's do.
        """
        for number, line in enumerate(lines, start=1):
            too_long = len(line) > parsing.LONGEST_LINE // (
                2 if any(lead in line for lead in _FOUR_BYTES) else 1
            )
            self.too_long += too_long
            if not too_long:
                yield line if number == len(lines) else line + b"\n"

    def notes(self) -> Notes:
        """Return the note on lines that were left out."""
        of = f"of more than {parsing.LONGEST_LINE:,} bytes (half of it with 4-byte characters)"
        return noted(self.too_long, f"line {of} was", f"lines {of} were")


def _pieces(file: IO[AnyStr], most: int) -> Iterator[tuple[int, AnyStr]]:
    """Yield whole lines, some megabytes at a time, and where they begin; of one that is too long
    only the start.
    """
    start = file.tell()
    while piece := file.read(_BLOCK):
        if len(piece) == _BLOCK and not start:  # freed: the allocator then gives back no block
            bytearray(4 * _BLOCK)
        piece += file.readline(most)
        rest = piece
        while rest[-1:] not in ("\n", b"\n") and (rest := file.readline(most)):
            pass
        yield start, piece
        start = file.tell()


def in_utf8(piece: bytes, encoding: str) -> bytes:
    """Return bytes of a text of another encoding, UTF-16 apart, as UTF-8 without its mark; a hole
    of blank lines is one line feed.
    """
    text = (
        piece.decode(encoding).encode()
        if encoding == "latin-1"
        else piece.removeprefix(b"\xef\xbb\xbf")
    )
    if _DENSE * (marks_in(text, b"\n") + marks_in(text, b"\r")) < len(text):
        return text
    return _BLANK.sub(lambda hole: b"\n" if hole[0].strip(b" \t") else hole[0], text)


def lines_in(block: bytes) -> list[str]:
    """Return the lines of whole ones in UTF-8, without NUL bytes."""
    return lines_of(block.decode(errors="replace").replace("\0", ""))


def some_of(names: Sequence[str], most: int = 3) -> str:
    """Return the first names of a list, and dots for the others."""
    return ", ".join(names[:most]) + (", ..." if len(names) > most else "")


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value of JSON is a number, or true or false."""
    return isinstance(value, int | float)


def is_scalar(value: Any) -> TypeGuard[str | float]:
    """Return whether a value of JSON is a number or a text."""
    return isinstance(value, str | int | float)


_DECODER = json.JSONDecoder(parse_int=float)


def json_in(text: str, *, floats: bool = True) -> Any:
    """Return the value of a JSON text, None where it is damaged."""
    try:
        return parse_json(text, floats=floats)
    except ValueError:
        return None


def json_lines(lines: Iterable[str], *, floats: bool = True) -> Iterator[JsonObject | None]:
    """Yield the object of each line that is not blank, None for one that holds no whole object."""
    for line in lines:
        text = line.strip("\0\ufeff \t\r\n").replace("\0", "")
        if text:
            row = json_in(text, floats=floats)
            yield row if isinstance(row, dict) else None


def marks_in(text: bytes, mark: bytes) -> int:
    """Return how often a character of ASCII, or a pair of two different ones, stands in a text,
    counted faster than bytes do.
    """
    if mark[0] not in text:
        return 0
    width, value = len(mark), int.from_bytes(mark, "little")
    parts = (
        np.frombuffer(text, f"<u{width}", (len(text) - at) // width, at) for at in range(width)
    )
    return sum(int(np.count_nonzero(part == value)) for part in parts)


_GAP = re.compile(r"[ \t\r\n,]*")


_WORDS = {
    row["name"]: tuple(row["words"].split(", ")) for row in table_rows("readers/vocabulary.tsv")
}


def vocabulary(name: str) -> tuple[str, ...]:
    """Return words that logs, their files and their columns use for one thing."""
    return _WORDS[name]


class JsonArray:
    """The elements of a JSON array within a text that may be cut off or damaged."""

    end = 0

    def __init__(self, text: str, start: int) -> None:
        self._text, self._start = text, start

    def __iter__(self) -> Iterator[Any]:
        """Yield elements until the array ends or breaks; one that ends with the text may be cut
        off.
        """
        text, position = self._text, self._start
        while True:
            position = _GAP.match(text, position).end()  # type: ignore[union-attr]
            if text[position : position + 1] == "]":
                self.end = position + 1
                return
            try:
                value, position = _DECODER.raw_decode(text, position)
            except ValueError:
                return
            if position == len(text):
                return
            yield value


def read_whole(seen: Peek) -> str:
    """Return the whole text of a file that cannot be streamed."""
    instead = f"in {shown(seen.path)}: save the rows as JSON lines"
    if seen.size > parsing.LARGEST_WHOLE:
        raise UnreadableRunError(
            f"expected JSON of at most {parsing.LARGEST_WHOLE / 1e6:.0f} MB, got "
            f"{seen.size / 1e6:.0f} MB {instead}"
        )
    with open_text(seen.path, seen.encoding) as file:
        text = file.read().replace("\0", "").lstrip("\ufeff")
    try:
        check_values(text)
    except TooManyValuesError as error:
        raise UnreadableRunError(
            f"expected JSON of at most {parsing.MOST_VALUES:,} values, got {error} {instead}"
        ) from None
    return text


HEAD = "Traceback (most recent call last)"
ENDINGS = vocabulary("printed_ending")
_PLACE, _RAISED, _ASIDE, _RANK = forms("source_place raised aside rank")
_LONGEST, _TAIL, _MOST_FILES = 120, 1 << 18, 200
_FIRST_PART = 1 << 25  # bytes, of all printed outputs of a folder
_SKIPPED = re.compile(
    next(
        row["pattern"].encode()
        for row in table_rows("readers/patterns.tsv")
        if row["quantity"] == "stale_groups"
    )
)


class Tracebacks:
    """Takes printed lines and keeps the last traceback behind each number of rows."""

    _is_open = _is_aside = _was_aside = False
    _place = ""

    def __init__(self) -> None:
        self.behind: dict[int, str] = {}  # rows before it -> exception, file and line

    def add(self, line: str, rows: int) -> None:
        """Take one line without colours and without the process that printed it."""
        text = _RANK.sub("", line, count=1) if line[:1] == "[" else line
        if HEAD in text:
            self._is_open, self._is_aside, self._place = True, self._was_aside, ""
        elif place := _PLACE.match(text) if self._is_open else None:
            self._place = f"{'/'.join(Path(place[1]).parts[-2:])}, line {place[2]}"
        elif self._is_open and text[:1].strip():
            raised = _RAISED.match(text)
            # behind an exception of Ray's the places of its cause follow
            self._is_open = raised is not None
            if raised and not self._is_aside:
                self.behind[rows] = self._quoted(raised)
        self._was_aside = text.startswith("Exception ") and _ASIDE.match(text) is not None

    def _quoted(self, raised: re.Match[str]) -> str:
        """Return an exception with its message, file and line."""
        words = "".join(filter(str.isprintable, raised[2] or "")).partition(". ")[0].strip()
        message = f": {words[:_LONGEST].rstrip(' .')}" if words else ""
        return f"{raised[1]}{message}" + (f" ({self._place})" if self._place else "")


def last_lines(path: Path) -> list[str]:
    """Return the lines of a file's end, as it stands there; the first may be cut."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - _TAIL))
        return lines_of(file.read(_TAIL).decode(errors="replace"))


def last_beside(log: Path | None, folder: Path) -> str:
    """Return the last traceback of the printed outputs in a folder that are not its log, with
    the name of the file; "" for none.
    """
    for path in _printed(log, folder):
        tracebacks = Tracebacks()
        for line in last_lines(path):
            tracebacks.add(ESCAPE.sub("", line).rstrip(), 0)
        if quoted := tracebacks.behind.get(0):
            return f"{quoted} in {path.name}"
    return ""


def skipped_beside(log: Path | None, folder: Path) -> Counter[int]:
    """Return how many groups of each step the printed outputs in a folder say were too old."""
    skipped, left = Counter[int](), _FIRST_PART
    for path in _printed(log, folder):
        with path.open("rb") as file:
            text = file.read(left)
        left -= len(text)
        skipped.update(map(int, _SKIPPED.findall(text)))
    return skipped


def _printed(log: Path | None, folder: Path) -> list[Path]:
    """Return the printed outputs in a folder that are not its log."""
    return [
        path
        for path in inside(folder, _MOST_FILES)
        if path != log and path.suffix.lower() in ENDINGS and path.is_file()
    ]
