"""The members of a file of one or several tar archives, from their headers.

Python's tarfile reads the headers; webdataset reads a stream alone, without the offsets that rows and a resume need.
"""

import tarfile
from collections.abc import Iterator
from typing import IO

from sslkit.data.sources.tar_names import plain, target

_END = bytes(tarfile.BLOCKSIZE)
_PACKED = (b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"\x28\xb5\x2f\xfd")  # how gzip, bzip2, xz and zstd files begin
_MOST_LINKS = 40  # from one to the next, as Linux allows
_AT_ONCE = 2**16  # bytes: memory, and few calls

Place = tuple[int, int]  # offset and size in bytes


class _Header(tarfile.TarInfo):
    """Reads the headers of plain files in a third of the time, without owner and times."""

    __slots__ = ()

    @classmethod
    def frombuf(cls, buf: bytes, encoding: str, errors: str) -> tarfile.TarInfo:
        if len(buf) != tarfile.BLOCKSIZE or buf[156] not in b"0\0" or buf[124] & 0x80:  # other kinds; 8 GB and more
            return super().frombuf(buf, encoding, errors)
        name, prefix = buf[:100].split(b"\0", 1)[0], buf[345:500].split(b"\0", 1)[0]
        try:
            size, checksum = int(buf[124:136].strip(b" \0"), 8), int(buf[148:156].strip(b" \0"), 8)
        except ValueError:
            size, checksum = -1, -1
        if size < 0 or name[-1:] == b"/" or checksum != sum(buf) - sum(buf[148:156]) + 8 * ord(" "):
            return super().frombuf(buf, encoding, errors)
        info = cls((prefix + b"/" + name if prefix else name).decode(encoding, errors))
        info.size, info.type = size, buf[156:157]
        return info


def is_compressed(stream: IO[bytes]) -> bool:
    stream.seek(0)
    return stream.read(max(map(len, _PACKED))).startswith(_PACKED)


def members(stream: IO[bytes], size: int) -> Iterator[tarfile.TarInfo | None]:
    """Every member of all archives in a file, and None at the end of each archive.

    Archives follow each other in a file that `cat` or `tar -A` wrote, with blocks of zeros between them.
    size: of the file in bytes, 0 if it is not known.
    Raises tarfile.TarError at damage; tarfile itself ends without a word there.
    """
    start: int | None = 0
    while start is not None:
        stream.seek(start)
        with tarfile.open(fileobj=stream, mode="r:", tarinfo=_Header) as tar:
            yield from _members(tar, size)
            yield None
            start = _next_archive(stream, tar.offset)


def _members(tar: tarfile.TarFile, size: int) -> Iterator[tarfile.TarInfo]:
    end = -1
    while (member := tar.next()) is not None:
        tar.members.clear()  # it would keep every header
        if tar.offset <= end or member.size < 0:  # it would read the same headers for ever
            raise tarfile.ReadError(f"the header of {member.name} has a negative size")
        end = tar.offset
        if member.isreg() and not member.issparse() and member.offset_data + member.size > size > 0:
            raise tarfile.ReadError(f"it ends within {member.name}")
        yield member


def _next_archive(stream: IO[bytes], end: int) -> int | None:
    """The offset of the archive behind the end mark at `end`; None without one."""
    stream.seek(end)
    if stream.read(len(_END)) != _END:
        raise tarfile.ReadError(f"there is no header and no end mark at byte {end}")
    start = end + len(_END)
    while block := stream.read(_AT_ONCE):
        if rest := block.lstrip(b"\0"):
            header = start + len(block) - len(rest)
            return header - header % len(_END)
        start += len(block)
    return None


class Links:
    """The members that links point at. Read from the headers of all archives in a file, as far as they go."""

    def __init__(self, stream: IO[bytes], size: int) -> None:
        self._places: dict[str, Place] = {}
        self._targets: dict[str, str] = {}
        try:
            for member in members(stream, size):
                if member is not None:
                    self._add(member)
        except tarfile.TarError:  # told of when the images are read
            pass

    def _add(self, member: tarfile.TarInfo) -> None:
        name = plain(member.name)
        if member.issym() or member.islnk():
            self._targets[name] = target(name, member.linkname, is_symbolic=member.issym())
        elif member.isreg() and not member.issparse():
            self._places[name] = (member.offset_data, member.size)

    def place(self, member: tarfile.TarInfo) -> Place | None:
        """The place of the content of a link; None if it points at no file here."""
        name = target(plain(member.name), member.linkname, is_symbolic=member.issym())
        for _ in range(_MOST_LINKS):
            if name in self._places:
                return self._places[name]
            name = self._targets.get(name, "")
        return None
