"""The readers' side of the processes that decode what is no plain image: they are started once, by the first reader.

That is the run itself, which looks at its images before its loader has workers. These inherit the address, or get it
with the pickled images. A process without one starts its own.
"""

import atexit
import hashlib
import json
import os
import secrets
import select
import signal
import socket
import stat
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import Any

from PIL import Image

from sslkit.data.decode import budget
from sslkit.data.decode.large import Source
from sslkit.data.decode.messages import Message, nameless, receive, send, write
from sslkit.data.decode.unreadable import MissingPackage, OverBudget, TooLarge, UnreadableImage
from sslkit.terminal import say

_PROGRAM = """
import json, sys
settings = json.loads(sys.argv[1])
sys.path[:] = settings.pop("path")
from sslkit.data.decode.decoder import main
main(**settings)
"""
_ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "TIFFFILE_NUM_THREADS"), "1")
_START = 120.0  # seconds for the first answer: the packages are imported before
_END = 5.0  # seconds for the processes to end with this one
_IDLE = 2  # decoders that a process keeps for later
_SHRUNK = 2**26  # bytes of pixels that the file of a decoder keeps


class _Lost(Exception):
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
    refused_bytes: int = 0
    refused: tuple[set[int], dict[str, str]] = (frozenset(), {})


_state = _State()


def address() -> str:
    """The address of the decoders, for images that go to another process; "" if none were needed so far."""
    return _state.address


def adopt(other: str) -> None:
    """Use the decoders of another process, unless this one has some."""
    _state.address = _state.address or other


class Decoder:
    """A process that has one image at a time. Raises _Lost where it cannot be reached."""

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
            raise _Lost from error

    def ask(self, do: str, wait: float, files: tuple[int, ...] = (), **options: Any) -> Message:
        """Raises OverBudget, and what the image is refused for."""
        try:
            self._connection.settimeout(wait)
            send(self._connection, {"do": do, **options}, files)
            answer, _ = receive(self._connection)
        except TimeoutError as error:
            raise OverBudget(f"it needed more than {wait:,.0f} seconds") from error
        except (OSError, EOFError, ValueError) as error:
            raise _Lost from error
        if "over" in answer:
            raise OverBudget(f"it needed more than {answer['over']}")
        if "died" in answer:
            if do == "open" and answer["died"] == signal.SIGKILL:  # maybe while it waited, before it had the image
                raise _Lost
            raise OverBudget(
                "" if answer["died"] == signal.SIGPROF else f"its decoder crashed ({_named(answer['died'])})"
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


def _named(number: int) -> str:
    with suppress(ValueError):
        return signal.Signals(number).name
    return f"exit code {-number}"


class Session:
    """An image in a decoder, from its opening to `close`.

    content: of the image, a file or in memory. kind: whose packages it may need. how: the options to open it by.
    Raises OSError, UnreadableImage, MissingPackage.
    """

    def __init__(self, content: Source, kind: str, how: Message) -> None:
        self._file, self._how, self._kind = _opened(content), how, kind
        self._length = os.fstat(self._file).st_size
        self._decoder: Decoder | None = None
        self._page: int | None = None
        self._broke = "it is closed"
        self.values = 0  # of the image's pixels
        try:
            self.description = self._begun()
        except BaseException:
            self.close()
            raise

    def _begun(self) -> Message:
        for is_last in (False, False, True):
            try:
                self._decoder = _free(self._kind)
                self._check_refused()
                return self.ask("open", (self._file,), **self._how, limit=Image.MAX_IMAGE_PIXELS)
            except _Lost as error:
                self._drop()
                if is_last:
                    raise UnreadableImage("the process that decodes it has ended") from error
        raise AssertionError

    def ask(self, do: str, files: tuple[int, ...] = (), **options: Any) -> Message:
        seconds = budget.seconds(self._length, self.values if do == "read" else 0)
        if self._decoder is None:
            raise OverBudget(self._broke)
        try:
            return self._decoder.ask(do, budget.WAIT + budget.WAIT_TIMES * seconds, files, **options)
        except OverBudget as error:
            reason = str(error) or f"it needed more than {seconds:,.0f} seconds of the processor"
            self._broke = reason
            self._refuse(reason)
            self._drop()
            raise OverBudget(reason) from error

    def turn(self, page: int, place: int) -> Message:
        self._page = page
        self._check_refused()
        return self.ask("turn", page=page, place=place)

    def read_into(self, length: int) -> bytearray:
        """The pixels that the last answer told of."""
        content, place = bytearray(length), 0
        while place < length and (count := os.preadv(self._decoder.pixels, [memoryview(content)[place:]], place)):
            place += count
        if place < length:
            raise UnreadableImage("its decoder gave fewer pixels than it said")
        if length > _SHRUNK:
            os.ftruncate(self._decoder.pixels, 0)
        return content

    def close(self) -> None:
        """Hand the decoder back."""
        if self._decoder is not None:
            _hand_back(self._decoder)
            self._decoder = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        self.close()

    def _drop(self) -> None:
        if self._decoder is not None:
            self._decoder.end()
            self._decoder = None

    def _check_refused(self) -> None:
        """Raises OverBudget for what has broken its budget before in this run, in whatever process."""
        lengths, reasons = _refused(self._decoder.refused)
        if self._length in lengths and (key := self._key()) in reasons:
            raise OverBudget(reasons[key])

    def _refuse(self, reason: str) -> None:
        line = json.dumps({"length": self._length, "key": self._key(), "reason": reason}).encode() + b"\n"
        os.write(self._decoder.refused, line)  # at the end, whoever else writes

    def _key(self) -> str:
        digest = hashlib.sha256(json.dumps([self._how, self._page], sort_keys=True).encode())
        digest.update(os.pread(self._file, self._length, 0))
        return digest.hexdigest()


def _refused(file: int) -> tuple[set[int], dict[str, str]]:
    """The lengths and the reasons, by key, of what broke its budget; read again when the file has grown."""
    size = os.fstat(file).st_size
    if size != _state.refused_bytes:
        lines = map(json.loads, os.pread(file, size, 0).splitlines())
        found = [(line["length"], line["key"], line["reason"]) for line in lines]
        _state.refused = {length for length, *_ in found}, {key: reason for _, key, reason in found}
        _state.refused_bytes = size
    return _state.refused


def _opened(content: Source) -> int:
    """The descriptor of a file, or of one in memory that has the content."""
    if isinstance(content, (str, Path)):
        file = os.open(content, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise UnreadableImage("it is no file")
        return file
    file = nameless()
    content.seek(0)
    write(file, content.read())
    return file


def _free(kind: str) -> Decoder:
    """A decoder that waits, or a new one. Raises _Lost."""
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
    except _Lost:
        with _state.lock:
            _state.address = ""  # of a process that is gone: the next attempt starts another
        raise


def _hand_back(decoder: Decoder) -> None:
    with _state.lock:
        if len(_state.idle) < _IDLE:
            _state.idle.append(decoder)
            return
    decoder.end()


def _start() -> None:
    """Start the process that starts decoders. Raises UnreadableImage where the system lets no process start."""
    listener, place = socket.socket(socket.AF_UNIX), _place()
    listener.bind(place)
    listener.listen(socket.SOMAXCONN)
    settings = {"listener": listener.fileno(), "owner": os.getpid(), "address": place, "path": sys.path}
    command = [sys.executable, "-c", _PROGRAM, json.dumps(settings)]
    environment = {**os.environ, **_ONE_THREAD}
    how = {"stdin": subprocess.PIPE, "stdout": subprocess.DEVNULL, "pass_fds": [listener.fileno()], "env": environment}
    with listener:
        _state.started = subprocess.Popen(command, **how)
    _state.address = place
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
