"""Images in .zip files: the members by the list at the file's end, each unpacked alone when it is read.

By hand at a known offset: zipfile would hold the list of all members in every worker.
"""

import stat
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import IO

from sslkit.data.decode.budget import check_unpacked
from sslkit.data.decode.formats import looks_like_an_image

ENDING = ".zip"
MOST = 2**30  # bytes of a member: a megabyte in the file can be a thousand when it is unpacked
_ENCRYPTED = 1  # of a member's flags
_HEADER = struct.Struct("<4s4xH16xHH")  # of a member: its mark, method, and the lengths of its name and of the rest
_MARK = b"PK\x03\x04"
_AT_ONCE = 2**22  # bytes: memory, and few calls


def is_zip(name: str) -> bool:
    return name.lower().endswith(ENDING)


class Zipped:
    """A member: its name, where its header is, its size when it is unpacked. It is read from its start alone.

    unread: the kind that it is left out as; "" for one that can be read.
    """

    def __init__(self, opened: zipfile.ZipFile, member: zipfile.ZipInfo) -> None:
        self.name, self.offset, self.size = member.filename, member.header_offset, member.file_size
        self.unread = _unread(member)
        self._opened, self._member = opened, member

    def seek(self, offset: int) -> None:
        pass

    def read(self, size: int) -> bytes:
        with self._opened.open(self._member) as stream:
            return stream.read(size)


def list_files(stream: IO[bytes]) -> Iterator[Zipped]:
    """Yield the files in a .zip, sorted by name as those of a folder. Raises zipfile's errors for a damaged one."""
    with zipfile.ZipFile(stream) as opened:
        for member in sorted(opened.infolist(), key=lambda one: one.filename):
            if not member.is_dir():
                yield Zipped(opened, member)


def unpack(some: Callable[[int, int], bytes], offset: int, size: int) -> bytes:
    """The `size` bytes of the member whose header is at an offset. some: up to so many bytes from an offset on.

    Raises OSError.
    """
    head = some(offset, _HEADER.size)
    if head[:4] != _MARK or len(head) < _HEADER.size:
        raise OSError("the .zip has no member there: it is another than when it was indexed")
    _, method, *lengths = _HEADER.unpack(head)
    begin = offset + _HEADER.size + sum(lengths)
    if method == zipfile.ZIP_STORED:
        return some(begin, size)
    try:
        return b"".join(_inflate(lambda after, most: some(begin + after, most), size))
    except zlib.error as error:
        raise OSError(f"the member cannot be unpacked: {error}") from error


def _inflate(some: Callable[[int, int], bytes], size: int) -> Iterator[bytes]:
    """Yield the parts of a deflated member of `size` bytes. some: up to so many of its packed bytes, from one on.

    Raises OSError where it needs more than its packed bytes allow, see `budget.check_unpacked`.
    """
    inflate, packed, length, start = zlib.decompressobj(-zlib.MAX_WBITS), 0, 0, b""
    while length < size and not inflate.eof:
        if not (rest := inflate.unconsumed_tail):
            rest = some(packed, min(size, _AT_ONCE))
            packed += len(rest)
        if not rest:
            return
        piece = inflate.decompress(rest, min(size - length, _AT_ONCE))
        start = start or piece
        length += len(piece)
        check_unpacked(length, packed, looks_like_an_image(start))
        yield piece


def _unread(member: zipfile.ZipInfo) -> str:
    """The kind of a member that is left out; "" for others."""
    if member.flag_bits & _ENCRYPTED:
        return "encrypted"
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        return "packed by another method than deflate"
    if stat.S_ISLNK(member.external_attr >> 16):
        return "links"
    return f"of more than {MOST:,} bytes" if member.file_size > MOST else ""
