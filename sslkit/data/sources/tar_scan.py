"""One tar file, read from its headers, or one .zip file, from its list of members."""

import tarfile
from typing import IO

from sslkit.data.sources.shard_files import ShardFiles, State, compression_error
from sslkit.data.sources.tar_archives import Links, is_compressed, members
from sslkit.data.sources.tar_samples import Keys, Members, Samples
from sslkit.data.sources.zip_archives import is_zip, list_files
from sslkit.errors import UserError, first_line
from sslkit.files.reading import STAND_IN, stand_in


def scan(files: ShardFiles, shard: str, state: State, keys: Keys) -> Members:
    """Read the headers and the labels of a shard. Raises UserError for a compressed one."""
    samples, reason = Samples(keys), ""
    try:
        with files.stream(shard) as stream:
            if is_compressed(stream):
                raise compression_error(shard)
            stream.seek(0)
            if message := stand_in(stream.read(STAND_IN)):
                raise tarfile.ReadError(message)
            try:
                _read_zip(stream, samples) if is_zip(shard) else _read_members(stream, state.bytes, samples, None)
            except _HasLinks:
                samples = Samples(keys)
                _read_members(stream, state.bytes, samples, Links(stream, state.bytes))
    except UserError:
        raise
    except Exception as error:  # tarfile, and each file system of fsspec, raise their own
        reason = first_line(error) or type(error).__name__
    return samples.members(state, reason)


def _read_zip(stream: IO[bytes], samples: Samples) -> None:
    try:
        for member in list_files(stream):
            if member.unread:
                samples.left_out[member.unread] += 1
            else:
                samples.add(member, member.name, member.offset, member.size)
    finally:
        samples.end()


class _HasLinks(Exception):
    """The members that links point at must be found first: some come later."""


def _read_members(stream: IO[bytes], size: int, samples: Samples, links: Links | None) -> None:
    try:
        for member in members(stream, size):
            if member is None:
                samples.end()
            elif member.islnk() or member.issym():
                _follow(stream, samples, member, links)
            elif member.isreg() and member.issparse():
                samples.left_out["sparse (tar -S)"] += 1
            elif member.isreg():
                samples.add(stream, member.name, member.offset_data, member.size)
    finally:
        samples.end()


def _follow(stream: IO[bytes], samples: Samples, member: tarfile.TarInfo, links: Links | None) -> None:
    if links is None:
        raise _HasLinks
    span = links.place(member)
    if span is None:
        samples.left_out["links to no file in the shard"] += 1
    else:
        samples.add(stream, member.name, *span)
