"""Messages between a run and its decoders: a JSON object behind its length, with the descriptors of open files."""

import json
import os
import socket
import struct
import tempfile
from collections.abc import Sequence
from typing import Any

_HEAD = struct.Struct(">I")
_MOST = 2**24  # bytes; a picture's description has some hundreds, and what is longer is no description

Message = dict[str, Any]


def send(connection: socket.socket, message: Message, files: Sequence[int] = ()) -> None:
    """Raises OSError if nobody listens any more."""
    content = json.dumps(message).encode()
    whole = _HEAD.pack(len(content)) + content
    sent = socket.send_fds(connection, [whole], files) if files else 0
    connection.sendall(whole[sent:])


def receive(connection: socket.socket, files: int = 0) -> tuple[Message, list[int]]:
    """A message, and up to so many open files. Raises EOFError at the end, and OSError (TimeoutError, too)."""
    if files:
        head, opened, *_ = socket.recv_fds(connection, _HEAD.size, files, socket.MSG_WAITALL)
    else:
        head, opened = connection.recv(_HEAD.size, socket.MSG_WAITALL), []
    try:
        (length,) = _HEAD.unpack(_whole(connection, head, _HEAD.size))
        if length > _MOST:
            raise EOFError("a message without end")
        return json.loads(_whole(connection, b"", length)), opened
    except BaseException:
        for file in opened:
            os.close(file)
        raise


def _whole(connection: socket.socket, content: bytes, length: int) -> bytes:
    while len(content) < length:
        if not (more := connection.recv(length - len(content))):
            raise EOFError("the connection has ended")
        content += more
    return content


def nameless() -> int:
    """The descriptor of an empty file without a name, in memory where the system has such."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("sslkit")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def write(file: int, content: bytes | memoryview) -> None:
    """Write the whole content to the start of a file."""
    rest, position = memoryview(content).cast("B"), 0
    while position < len(rest):
        position += os.pwrite(file, rest[position:], position)
