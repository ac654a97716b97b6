"""The wire format of Protocol Buffers, and the records that TensorBoard and W&B write them in: read
with checksums, nothing else.

Only lengths, numbers and byte strings are taken apart; no schema is loaded and no code is run. It
knows no metric.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from functools import cache
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from groupwise import limits
from groupwise.arrays import Flags, Whole

_BLOCK = 1 << 15
_MASK_DELTA = 0xA282EAD8
_POLYNOMIAL = 0x82F63B78  # of Castagnoli, its bits reversed
_READ = 1 << 23
_LARGEST_CHECKED = 1 << 13  # a larger record is a graph or an image, not a number


def fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and value of each field of a message."""
    position = 0
    while position < len(data):
        tag, position = _varint(data, position)
        number, kind = tag >> 3, tag & 7
        if number == 0:
            raise ValueError("a field has the number 0")
        if kind == 0:
            value, position = _varint(data, position)
            yield number, value
            continue
        if kind == 2:
            length, position = _varint(data, position)
        elif kind in (1, 5):
            length = 8 if kind == 1 else 4
        else:
            raise ValueError(f"a field has the wire type {kind}")
        if position + length > len(data):
            raise ValueError("a field ends after the message")
        yield number, data[position : position + length]
        position += length


class Message:
    """The fields of a message by number."""

    def __init__(self, data: bytes) -> None:
        self._values: dict[int, list[int | bytes]] = {}
        for number, value in fields(data):
            self._values.setdefault(number, []).append(value)

    def blobs(self, number: int) -> list[bytes]:
        """Return the values of a field that are bytes."""
        return [value for value in self._values.get(number, ()) if isinstance(value, bytes)]

    def numbers(self, number: int) -> list[int]:
        """Return the values of a field that are variable-length integers."""
        return [value for value in self._values.get(number, ()) if isinstance(value, int)]


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """Return the variable-length integer at a position, and where it ends."""
    value = shift = 0
    while True:
        if position >= len(data) or shift > 63:
            raise ValueError("a number is cut off")
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFFFFFFFFFFFFFF, position
        shift += 7


def signed(value: int) -> int:
    """Return a 64-bit integer of the wire with its sign."""
    return value - (1 << 64) if value >= 1 << 63 else value


def text(value: bytes) -> str:
    """Return the text of a field; bytes that are none become U+FFFD."""
    return value.decode("utf-8", "replace")


@cache
def _table() -> tuple[int, ...]:
    """Return the table of the Castagnoli checksum."""
    table = list(range(256))
    for _ in range(8):
        table = [value >> 1 ^ (_POLYNOMIAL if value & 1 else 0) for value in table]
    return tuple(table)


def masked_crcs(data: NDArray[np.uint8], start_N: Whole, length: int) -> NDArray[np.uint32]:
    """Return the masked CRC-32C of as many bytes from each place on, as TensorBoard's records
    have it: turned by 15 bits and shifted by a constant.
    """
    table = np.array(_table(), dtype=np.uint32)
    crc_N = np.full(len(start_N), 0xFFFFFFFF, dtype=np.uint32)
    for at in range(length):
        crc_N = table[(crc_N ^ data[start_N + at]) & 0xFF] ^ (crc_N >> 8)
    crc_N ^= np.uint32(0xFFFFFFFF)
    return np.asarray(((crc_N >> 15) | (crc_N << 17)) + np.uint32(_MASK_DELTA), dtype=np.uint32)


def _are_sound(data: bytes, start_N: Whole, length: int) -> Flags:
    """Return whether the masked CRC-32C of as many bytes from each place on is the number behind
    them.
    """
    seen = np.frombuffer(data, dtype=np.uint8)
    written = seen[start_N[:, None] + (length + np.arange(4))].view("<u4")[:, 0]
    return np.asarray(masked_crcs(seen, start_N, length) == written)


def is_tfrecord(head: bytes) -> bool:
    """Return whether bytes start with the length of a record and its checksum."""
    return (
        len(head) >= 12
        and int.from_bytes(head[:8], "little") <= limits.LARGEST_RECORD
        and bool(_are_sound(head, np.zeros(1, dtype=np.int64), 8)[0])
    )


class TfRecords:
    """The records of an event file; those whose checksum is wrong are left out and counted."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self.damaged, self.complete = 0, True

    def __iter__(self) -> Iterator[bytes]:
        """Yield the payloads of the records."""
        rest = b""
        while self.complete and (more := self._file.read(_READ)):
            data = rest + more
            heads, end = self._framed(data)
            start_N, length_N = self._sound(data, heads)
            for start, length in zip(start_N.tolist(), length_N.tolist(), strict=True):
                yield data[start : start + length]
            rest = data[end:]
        self.complete &= not rest

    def _framed(self, data: bytes) -> tuple[list[int], int]:
        """Return where the records start that are all there, and where the last of them ends."""
        heads: list[int] = []
        position, size, length_at = 0, len(data), struct.Struct("<Q").unpack_from
        while position + 12 <= size:
            end = position + 16 + length_at(data, position)[0]
            if end > size:
                self.complete = is_tfrecord(data[position : position + 12])
                break
            heads.append(position)
            position = end
        return heads, position

    def _sound(self, data: bytes, heads: list[int]) -> tuple[Whole, Whole]:
        """Return places and lengths of the payloads with the right checksum, up to the first
        head that has a wrong one.
        """
        seen, head_N = np.frombuffer(data, dtype=np.uint8), np.array(heads, dtype=np.int64)
        right = _are_sound(data, head_N, 8)
        if not right.all():
            self.complete = False
            head_N = head_N[: int(right.argmin())]
        start_N = head_N + 12
        length_N = seen[head_N[:, None] + np.arange(8)].view("<i8")[:, 0]
        sound_N = length_N > _LARGEST_CHECKED
        for length in np.unique(length_N[~sound_N]).tolist():
            of_length = length_N == length
            sound_N[of_length] = _are_sound(data, start_N[of_length], length)
        self.damaged += int((~sound_N).sum())
        return start_N[sound_N], length_N[sound_N]


class BlockRecords:
    """The records of a file in LevelDB's log format as W&B writes it; those whose checksum is
    wrong are left out and counted.
    """

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.damaged = 0

    def __iter__(self) -> Iterator[bytes]:
        """Yield whole records, joined from their pieces."""
        parts: list[bytes] = []
        for kind, piece in self._pieces():
            if kind == 1:
                parts = []
                yield piece
            elif kind == 2:
                parts = [piece]
            elif kind in (3, 4) and parts:
                parts.append(piece)
                if kind == 4:
                    yield b"".join(parts)
                    parts = []
            elif kind == 0:
                parts = []

    def _pieces(self) -> Iterator[tuple[int, bytes]]:
        """Yield type and bytes of each piece; type 0 stands for a damaged one."""
        data, position = self._data, 7
        while position + 7 <= len(data):
            left = _BLOCK - position % _BLOCK
            if left < 7:
                position += left
                continue
            piece = self._piece(position)
            if piece is not None:
                yield piece
                position += 7 + len(piece[1])
                continue
            if any(data[position : position + 7]):
                self.damaged += 1
                yield 0, b""
            # A wrong length would lead astray: it is believed only where a sound piece follows it,
            # else the next block starts anew.
            after = position + 7 + int.from_bytes(data[position + 4 : position + 6], "little")
            position = (
                after
                if after - position + 7 <= left and self._piece(after) is not None
                else position + left
            )

    def _piece(self, position: int) -> tuple[int, bytes] | None:
        """Return type and bytes of the piece at a position, None where it is not sound."""
        if position + 7 > len(self._data):
            return None
        crc, length, kind = struct.unpack_from("<IHB", self._data, position)
        piece = self._data[position + 7 : position + 7 + length]
        fits = length + 7 <= _BLOCK - position % _BLOCK and len(piece) == length and 1 <= kind <= 4
        return (
            (kind, piece) if fits and zlib.crc32(piece, zlib.crc32(bytes([kind]))) == crc else None
        )
