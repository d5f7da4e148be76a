"""The processes that decode what is no plain image, below limits: one that starts others, and those, one a reader.

A reader (a run, or a worker of its loader) connects, and is served by a process of its own, forked here, until it
hangs up. All end with the process that started the first. See `client` for the readers' side.
"""

import fcntl
import os
import select
import shutil
import signal
import socket
import struct
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from typing import NoReturn

from PIL import Image

from sslkit.data.decode.sandbox.messages import nameless, receive, send
from sslkit.data.decode.sandbox.worker import Worker

_LOOK = 1000  # milliseconds between two looks at whether the owner lives: as long a killed run's decoders stay
_HELLO = 10.0  # seconds for a reader's first message, which it sends at once
_INPUT, _CONNECTION, _PIXELS = 0, 3, 4  # descriptors; of a decoder's, the last


def main(listener: int, owner: int, address: str) -> None:
    """Serve the readers at a socket until the owner closes its end of the input, or is gone."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):  # all end with the owner, who may still read then
        signal.signal(number, signal.SIG_IGN)
    Image.init()
    Server(socket.socket(fileno=listener)).serve(owner)
    if not address.startswith("\0"):
        shutil.rmtree(os.path.dirname(address), ignore_errors=True)


@dataclass
class Server:
    """decoders: process and connection by the descriptor of the latter, which this process holds to tell of its end."""

    listener: socket.socket
    decoders: dict[int, tuple[int, socket.socket]] = field(default_factory=dict)

    def serve(self, owner: int) -> None:
        refused, waits, (woken, wakes) = nameless(), select.poll(), os.pipe()
        fcntl.fcntl(refused, fcntl.F_SETFL, os.O_APPEND)
        os.set_blocking(wakes, False)
        signal.set_wakeup_fd(wakes)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        for descriptor in (self.listener.fileno(), _INPUT, woken):
            waits.register(descriptor, select.POLLIN)
        while os.getppid() == owner:
            for descriptor, _ in waits.poll(_LOOK):
                if descriptor == _INPUT:
                    return self._end()
                if descriptor == woken:
                    os.read(woken, 2**12)
                elif descriptor == self.listener.fileno():
                    if (reader := self._accept(refused)) is not None:
                        waits.register(reader, 0)  # tells when it hangs up
                elif descriptor in self.decoders:
                    waits.unregister(descriptor)
                    self._hang_up(descriptor)
            for descriptor in self._find_ended():
                waits.unregister(descriptor)
                self.decoders.pop(descriptor)[1].close()
        self._end()

    def _accept(self, refused: int) -> int | None:
        """Fork the decoder of a new reader. refused: the file of what broke its budget, which all readers share."""
        connection, _ = self.listener.accept()
        connection.settimeout(_HELLO)
        try:
            if not _is_ours(connection):
                return connection.close()
            hello, (pixels,) = receive(connection, files=1)
            send(connection, {}, [refused])
        except (OSError, EOFError, ValueError):
            return connection.close()
        connection.settimeout(None)
        _import(hello["kind"])
        process = os.fork()
        if not process:
            _decode(connection, pixels)
        os.close(pixels)
        self.decoders[connection.fileno()] = process, connection
        return connection.fileno()

    def _hang_up(self, descriptor: int) -> None:
        process, connection = self.decoders.pop(descriptor)
        os.kill(process, signal.SIGKILL)
        os.waitpid(process, 0)
        connection.close()

    def _find_ended(self) -> list[int]:
        """The connections of decoders that died; their readers are told by which signal."""
        descriptors = []
        for descriptor, (process, connection) in self.decoders.items():
            ended, status = os.waitpid(process, os.WNOHANG)
            if ended:
                descriptors.append(descriptor)
                with suppress(OSError):
                    send(connection, {"died": -os.waitstatus_to_exitcode(status)})
        return descriptors

    def _end(self) -> None:
        for process, _ in self.decoders.values():
            os.kill(process, signal.SIGKILL)


def _decode(connection: socket.socket, pixels: int) -> NoReturn:
    """Serve one reader, in a process forked for it, with no other file than those of the constants."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    code = 1
    try:
        first = max(_PIXELS, pixels, connection.fileno()) + 1
        held = [os.dup2(file, first + offset) for offset, file in enumerate((connection.fileno(), pixels))]
        nothing = os.open(os.devnull, os.O_RDWR)
        for target, file in enumerate((nothing, nothing, nothing, *held)):
            os.dup2(file, target)
        os.closerange(_PIXELS + 1, first + len(held) + 1)
        Worker(_PIXELS).serve(socket.socket(fileno=_CONNECTION))
        code = 0
    finally:
        os._exit(code)


def _import(kind: str) -> None:
    """Import the packages of a kind of files once, for all decoders to come; some may be missing."""
    with suppress(ImportError):
        if kind == "tiff":
            import tifffile

            for compression in tifffile.COMPRESSION:
                with suppress(KeyError):
                    tifffile.TIFF.DECOMPRESSORS[compression]
        elif kind == "dicom":
            import pydicom.pixels  # noqa: F401
        elif kind == "heif":
            import pillow_heif  # noqa: F401


def _is_ours(connection: socket.socket) -> bool:
    """Return whether the other end is of this user; elsewhere than on Linux the folder of the socket says it."""
    if sys.platform != "linux":
        return True
    _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return user == os.getuid()
