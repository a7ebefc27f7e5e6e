"""Bytes of a text file in blocks of whole lines: gzip unpacked, byte order mark dropped, UTF-8 checked."""

from __future__ import annotations

import codecs
import gzip
import io
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, cast

from biqe.errors import BadLine, UnreadableFile

BLOCK_BYTES = 8 << 20
MAX_LINE_BYTES = 16 << 20
"""A longer line is refused: it is hardly a triple, and it would have to be held in memory whole."""
MAX_RATIO, FREE_BYTES = 200, 256 << 20
"""A gzip file that unpacks to more than FREE_BYTES, and to more than so many times its size, is refused. Triples unpack
to thirty times the size, or sixty; only a file that was made to do harm, or of one line again and again, to more."""
MAX_NAME_BYTES = 65_535
"""A longer name of an entity or relation is refused."""

Advance = Callable[[int], None]
"""Called with the number of bytes of the file on disk that were read since the last call."""

STANDARD_INPUT = Path("/dev/stdin")
GZIP = b"\x1f\x8b"
"""How a gzip file begins."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_MAGIC = {
    b"PAR1": "Parquet",
    b"PK\x03\x04": "zip",
    b"BZh": "bzip2",
    b"\xfd7zXZ": "xz",
    b"\x28\xb5\x2f\xfd": "Zstandard",
}


@dataclass(frozen=True)
class Block:
    """Whole lines of a file."""

    data: bytes
    """Ends with a line feed, except maybe at the end of the file."""
    first_line: int
    """Number of its first line, from 1."""


class _Disk:
    """The bytes of a file or a pipe. The first few can be read in advance, and the bytes read are counted."""

    def __init__(self, path: Path) -> None:
        try:
            self._stream = path.open("rb")
        except OSError:
            # Not everything that can be the standard input, a socket for one, can be opened by name.
            if path != STANDARD_INPUT:
                raise
            self._stream = open(0, "rb", closefd=False)
        self.used = 0
        try:
            self.head = self._stream.read(6)
        except OSError:
            self._stream.close()
            raise
        self._next = self.head

    def read(self, size: int = -1) -> bytes:
        if self._next:
            end = len(self._next) if size < 0 else size
            data, self._next = self._next[:end], self._next[end:]
            if size < 0 or len(data) < size:
                data += self._stream.read(size - len(data) if size >= 0 else -1)
        else:
            data = self._stream.read(size)
        self.used += len(data)
        return data

    def close(self) -> None:
        self._stream.close()


class Input(io.RawIOBase):
    """The unpacked bytes of a file, with every failure of the system turned into UnreadableFile.

    ``advance`` is told how many bytes on disk were used, which for gzip is not the number of bytes returned.
    """

    def __init__(self, path: Path, advance: Advance | None = None) -> None:
        super().__init__()
        self.path = path
        self._advance = advance
        self._told = 0
        self._unpacked = 0
        try:
            self._disk = _Disk(path)
        except OSError as error:
            raise _unreadable(path, error) from error
        head = self._disk.head
        if not head:
            self._disk.close()
            raise UnreadableFile(f"{path} is empty", hint="was it written, or fetched, to its end?")
        self._packed = head.startswith(GZIP)
        if path.suffix.lower() == ".gz" and not self._packed:
            self._disk.close()
            raise UnreadableFile(
                f"{path} is named .gz but is not a gzip file", hint="if it is plain text, take .gz off its name"
            )
        for magic, kind in _MAGIC.items():
            if head.startswith(magic):
                self._disk.close()
                raise UnreadableFile(
                    f"{path} is a {kind} file, not text",
                    hint="use --format parquet" if kind == "Parquet" else "unpack it first, or pack it with gzip",
                )
        # The gzip module needs no more of a file than that it can be read.
        self._stream: _Disk | gzip.GzipFile = (
            gzip.GzipFile(fileobj=cast("IO[bytes]", self._disk)) if self._packed else self._disk
        )
        self._decoder: codecs.IncrementalDecoder | None = None
        self._head = self._read(len(_BYTE_ORDER_MARK))
        if self._head == _BYTE_ORDER_MARK:
            self._head = b""
        elif self._head.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
            self._decoder = codecs.getincrementaldecoder("utf-16")()
            self._head = self._decoder.decode(self._head).encode()

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._head and size != 0:
            head, self._head = self._head, b""
            if 0 < size < len(head):
                head, self._head = head[:size], head[size:]
            return head if 0 < size <= len(head) else head + self._read(size - len(head) if size > 0 else -1)
        return self._read(size)

    def readinto(self, buffer) -> int:  # type: ignore[no-untyped-def, override]
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def close(self) -> None:
        if not self.closed:
            self._stream.close()
            self._disk.close()
        super().close()

    def _read(self, size: int) -> bytes:
        """Bytes of the file, UTF-16 as UTF-8, which may take half as much space again."""
        if self._decoder is None:
            return self._read_raw(size)
        while True:
            data = self._read_raw(max(2, size // 2) if size > 0 else size)
            try:
                text = self._decoder.decode(data, final=not data)
                unpacked = text.encode()
            except (UnicodeDecodeError, UnicodeEncodeError) as error:
                raise UnreadableFile(
                    f"{self.path} begins as UTF-16 text and is none: {error}", hint="save the file as UTF-8"
                ) from error
            if unpacked or not data:
                return unpacked

    def _read_raw(self, size: int) -> bytes:
        try:
            data = self._stream.read(size)
        except (EOFError, zlib.error, gzip.BadGzipFile) as error:
            raise UnreadableFile(
                f"{self.path} is a damaged or truncated gzip file: {error}", hint="fetch or pack it again"
            ) from error
        except OSError as error:
            raise _unreadable(self.path, error) from error
        self._unpacked += len(data)
        if self._packed and self._unpacked > max(FREE_BYTES, MAX_RATIO * self._disk.used):
            raise UnreadableFile(
                f"{self.path} unpacks to more than {MAX_RATIO} times its size",
                hint="if it is meant to, unpack it first: gunzip FILE",
            )
        if self._advance is not None:
            self._advance(self._disk.used - self._told)
            self._told = self._disk.used
        return data


def _unreadable(path: Path, error: OSError) -> UnreadableFile:
    return UnreadableFile(
        f"{path} cannot be read: {error.strerror or error}", hint="is it a file, and are you allowed to read it?"
    )


def blocks(
    path: Path,
    *,
    advance: Advance | None = None,
    size: int = BLOCK_BYTES,
    refuse: Callable[[BadLine], None] | None = None,
    encoding: str | None = None,
    decoded: Callable[[], None] = lambda: None,
) -> Iterator[Block]:
    """The lines of ``path`` in blocks of about ``size`` bytes; each block is checked to be UTF-8 without NUL.

    A byte order mark at the start is dropped, and UTF-16 behind one is read. Lines that are not UTF-8 are read in
    ``encoding``, where one is given, and each is told to ``decoded``. Refused: empty, unreadable or damaged files,
    other encodings, lines longer than MAX_LINE_BYTES. Lines that are not text are handed to ``refuse``, where given; if
    it does not raise, they are left empty.
    """
    line = 1
    with Input(path, advance) as stream:
        kept: list[bytes] = []
        kept_bytes = 0
        while True:
            data = stream.read(size)
            end = data.rfind(b"\n") + 1
            if data and not end:
                kept.append(data)
                kept_bytes += len(data)
                if kept_bytes > MAX_LINE_BYTES:
                    raise _too_long(path, line, kept_bytes)
                continue
            if end + kept_bytes > MAX_LINE_BYTES and data.find(b"\n") + kept_bytes > MAX_LINE_BYTES:
                raise _too_long(path, line, kept_bytes)
            block = b"".join([*kept, data[:end]]) if kept else data[:end]
            kept, kept_bytes = ([data[end:]], len(data) - end) if end < len(data) else ([], 0)
            if block:
                yield Block(_text(block, path, line, refuse, encoding, decoded), line)
                line += block.count(b"\n")
            if not data:
                return


def _text(
    data: bytes,
    path: Path,
    first_line: int,
    refuse: Callable[[BadLine], None] | None,
    encoding: str | None,
    decoded: Callable[[], None],
) -> bytes:
    """The lines as UTF-8, with those empty that are not text and that ``refuse`` lets pass."""
    try:
        _check_text(data, path, first_line)
        return data
    except BadLine:
        if refuse is None and encoding is None:
            raise
    lines = data.split(b"\n")
    for place, line in enumerate(lines):
        try:
            _check_text(line, path, first_line + place)
        except BadLine as error:
            try:
                if encoding is None or b"\0" in line:
                    raise error
                lines[place] = line.decode(encoding).encode()
                decoded()
            except (BadLine, UnicodeDecodeError):
                if refuse is None:
                    raise error from None
                refuse(error)
                lines[place] = b""
    return b"\n".join(lines)


def _check_text(data: bytes, path: Path, first_line: int) -> None:
    """BadLine at the first line of ``data`` that is not UTF-8 or holds a NUL byte."""
    nul = data.find(b"\0")
    if nul >= 0:
        raise BadLine(
            path,
            first_line + data.count(b"\n", 0, nul),
            "a NUL byte: this is not a text file",
            hint="save it as UTF-8 text (UTF-16 has NUL bytes), or name its format with --format",
        )
    if data.isascii():
        return
    try:
        data.decode()
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise BadLine(
            path,
            line,
            f"byte 0x{data[error.start]:02x} is not valid UTF-8",
            hint="save the file as UTF-8, or try --encoding windows-1252",
        ) from error


def _too_long(path: Path, line: int, size: int) -> BadLine:
    return BadLine(
        path,
        line,
        f"the line is longer than {MAX_LINE_BYTES:,} bytes ({size:,} and more), the longest that is read",
        hint="a line holds one triple; end lines with LF or CRLF",
    )
