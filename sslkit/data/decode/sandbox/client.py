"""The readers' side of the processes that decode what is no plain image: they are started once, by the first reader.

That is the run itself, which looks at its images before its loader has workers. These inherit the address, or get it
with the pickled images. A process without one starts its own.
"""

import atexit
import json
import os
import secrets
import select
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from sslkit.data.decode.sandbox.messages import Message, nameless, receive, send
from sslkit.data.decode.unreadable import MissingPackage, OverBudget, TooLarge, UnreadableImage
from sslkit.terminal import say

_PROGRAM = """
import json, sys
settings = json.loads(sys.argv[1])
sys.path[:] = settings.pop("path")
from sslkit.data.decode.sandbox.server import main
main(**settings)
"""
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TIFFFILE_NUM_THREADS"), "1")
_START = 120.0  # seconds for the first answer: the packages are imported before, from a slow network disk at worst
_END = 5.0  # seconds for the processes to end with this one: they have nothing to save
_IDLE = 2  # decoders that a process keeps for later: each has some memory of its own, and a new one costs a start


class Lost(Exception):
    """The decoder has ended without a word, or cannot be reached."""


@dataclass
class _State:
    """The state of this process.

    address: of the socket; "" before there is one. started: the process that this one started.
    """

    address: str = ""
    started: subprocess.Popen | None = None
    idle: list["Decoder"] = field(default_factory=list)  # that wait for an image
    lock: Any = field(default_factory=Lock)


_state = _State()


def address() -> str:
    """The address of the decoders, for images that go to another process; "" if none were needed so far."""
    return _state.address


def adopt(other: str) -> None:
    """Use the decoders of another process, unless this one has some."""
    _state.address = _state.address or other


class Decoder:
    """A process that has one image at a time. Raises Lost where it cannot be reached."""

    def __init__(self, kind: str) -> None:
        self.pixels = nameless()
        self._connection = socket.socket(socket.AF_UNIX)
        try:
            self._connection.settimeout(_START)
            self._connection.connect(_state.address)
            send(self._connection, {"kind": kind}, [self.pixels])
            _, (self.refused,) = receive(self._connection, files=1)
        except (OSError, EOFError, ValueError) as error:
            self.end()
            raise Lost from error

    def ask(self, do: str, wait: float, files: tuple[int, ...] = (), **options: Any) -> Message:
        """Raises OverBudget, and what the image is refused for."""
        try:
            self._connection.settimeout(wait)
            send(self._connection, {"do": do, **options}, files)
            answer, _ = receive(self._connection)
        except TimeoutError as error:
            raise OverBudget(f"it needed more than {wait:,.0f} seconds") from error
        except (OSError, EOFError, ValueError) as error:
            raise Lost from error
        if "over" in answer:
            raise OverBudget(f"it needed more than {answer['over']}")
        if "died" in answer:
            if do == "open" and answer["died"] == signal.SIGKILL:  # maybe while it waited, before it had the image
                raise Lost
            raise OverBudget(
                "" if answer["died"] == signal.SIGPROF else f"its decoder crashed ({_signal_name(answer['died'])})"
            )
        if "missing" in answer:
            raise MissingPackage(*answer["missing"])
        if "error" in answer:
            raise (TooLarge if answer["is_too_large"] else UnreadableImage)(answer["error"])
        return answer

    def is_alive(self) -> bool:
        """Return whether nothing has come while nothing was asked: neither its end nor the news of it."""
        return not select.select([self._connection], [], [], 0)[0]

    def end(self) -> None:
        self._connection.close()
        os.close(self.pixels)


def _signal_name(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"exit code {-number}"


def free(kind: str) -> Decoder:
    """A decoder that waits, or a new one. Raises Lost."""
    with _state.lock:
        while _state.idle:
            decoder = _state.idle.pop()
            if decoder.is_alive():
                return decoder
            decoder.end()
        if not _state.address:
            _start()
    try:
        return Decoder(kind)
    except Lost:
        with _state.lock:
            _state.address = ""  # of a process that is gone: the next attempt starts another
        raise


def hand_back(decoder: Decoder) -> None:
    with _state.lock:
        if len(_state.idle) < _IDLE:
            _state.idle.append(decoder)
            return
    decoder.end()


def _start() -> None:
    """Start the process that starts decoders. Raises UnreadableImage where the system lets no process start."""
    listener, address = socket.socket(socket.AF_UNIX), _place()
    listener.bind(address)
    listener.listen(socket.SOMAXCONN)
    settings = {"listener": listener.fileno(), "owner": os.getpid(), "address": address, "path": sys.path}
    command = [sys.executable, "-c", _PROGRAM, json.dumps(settings)]
    environment = {**os.environ, **_ONE_THREAD}
    how = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "pass_fds": [listener.fileno()], "env": environment}
    with listener:
        _state.started = subprocess.Popen(command, **how)
    _state.address = address
    atexit.register(end)
    if sys.platform != "linux":
        say.warn("this system limits the time of a decoder and its files, not its memory", stacklevel=2)


def _place() -> str:
    """An address without a file, which ends with the socket; elsewhere than on Linux one in a folder of its own."""
    if sys.platform == "linux":
        return f"\0sslkit-decoders-{secrets.token_hex(16)}"
    return os.path.join(tempfile.mkdtemp(prefix="sslkit-"), "decoders")


def end() -> None:
    """End the decoders that this process has started; others are started when they are needed."""
    started, _state.started, _state.address = _state.started, None, ""
    while _state.idle:
        _state.idle.pop().end()
    if started is None:
        return
    started.stdin.close()
    try:
        started.wait(_END)
    except subprocess.TimeoutExpired:
        started.kill()
        started.wait()


def _forget() -> None:
    """In a forked process: what is open belongs to the other one, whose end the decoders are to see."""
    if _state.started is not None:
        _state.started.stdin.close()
        _state.started.returncode = 0  # not to be waited for here
    for decoder in _state.idle:
        decoder.end()
    _state.started, _state.idle, _state.lock = None, [], Lock()


os.register_at_fork(after_in_child=_forget)
