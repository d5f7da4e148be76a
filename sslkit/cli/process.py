"""The process of a command: threads that do not spin, memory it keeps, streams that cannot fail, stops by a signal.

It is imported before anything large, so that Ctrl-C during these imports is one line as well. Exit codes of all
commands: 0 done, 1 a run failed, 2 input refused, 130 SIGINT (Ctrl-C), 143 SIGTERM, 129 SIGHUP.
"""

import ctypes
import multiprocessing
import os
import platform
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from sslkit.runtime.light_imports import leave_out

PROGRAMS = ("recipes", "sslkit_recipes")  # their folder, in the clone and installed
FAILED, REFUSED = 1, 2  # exit codes: a run that failed, and, as of most commands, words that are refused
SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
STOPPED = "stopped; the same command goes on: what was finished is kept"
M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of <malloc.h>
# bytes of a block that is kept, above any activation, and the most that glibc before 2.35 takes
KEPT, MOST_BEFORE_2_35 = 2**30, 2**25
_prepared = False  # this process is a command's, and not one that imports a part of it
_started = False  # imports are done, so that a stop unwinds what was begun
_received = signal.SIGINT


class Lasting:
    """A standard stream that drops what it cannot write: a closed pipe or a full disk ends no run.

    Python reports such an error in the middle of the work, and once more at its end. A letter that the terminal lacks
    is written as its escape.
    """

    def __init__(self, stream: TextIO) -> None:
        if hasattr(stream, "reconfigure"):  # a stream that a caller has put in place may lack it
            stream.reconfigure(errors="backslashreplace")
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            self._stream.write(text)
        except OSError:
            self._drop()
        return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError:
            self._drop()

    def _drop(self) -> None:
        """Let what is in the stream's buffer, and all that follows, go nowhere."""
        _redirect(self._stream.fileno(), os.O_WRONLY)
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


def end(code: int, line: str = "") -> None:
    """Print a line to stderr, in the first process of several only, and exit with the code."""
    if line and _is_first():
        print(line, file=sys.stderr, flush=True)
    sys.exit(code)


@contextmanager
def stops(said: str = STOPPED) -> Iterator[None]:
    """Turn a stop by a signal into one line, `said` or that of the interrupt, and the signal's exit code."""
    global _started
    is_outermost, _started = not _started, True
    try:
        yield
    except KeyboardInterrupt as stop:
        from sslkit.terminal.say import as_typed

        _over()
        end(128 + _received, as_typed(str(stop) or said))
    finally:
        if is_outermost:
            _over()


def _over() -> None:
    """Ignore signals from now on: all is done but the end, which Python would leave at the next one without a word."""
    for number in SIGNALS:
        if signal.getsignal(number) in (_stop, _go_on):
            signal.signal(number, signal.SIG_IGN)


def _stop(number: int, frame: FrameType | None) -> None:
    global _received
    _received = signal.Signals(number)
    if not _started:
        with suppress(OSError):
            os.write(2, b"stopped before anything was begun\n")
        os._exit(128 + number)
    if hasattr(signal, "SIGCHLD"):  # torch's handler raises an error for workers that the same signal has ended
        signal.signal(signal.SIGCHLD, _go_on)
    raise KeyboardInterrupt


def _go_on(number: int, frame: FrameType | None) -> None:
    """Leave the end of this process to the first one's, which has got the signal too, or to their launcher."""


def _stop_child(number: int, frame: FrameType | None) -> None:
    if number != signal.SIGINT:  # Ctrl-C reaches the parent too, which ends its children
        os._exit(128 + number)


def prepare() -> None:
    """Make this process ready: that of a command, or a child that it has started afresh."""
    global _prepared
    _prepared = True
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: spinning threads stall a shared machine
    leave_out()
    _open_streams()
    is_child = multiprocessing.parent_process() is not None
    handler = _stop_child if is_child else _stop if _is_first() else _go_on
    for number in SIGNALS:
        if (
            signal.getsignal(number) is not signal.SIG_IGN
        ):  # nohup ignores SIGHUP, a shell SIGINT of what it runs behind
            signal.signal(number, handler)
    if not is_child:
        os.register_at_fork(after_in_child=_in_fork)


def is_command() -> bool:
    """Return whether this process is that of a command, whose words and signals are ours to read."""
    return _prepared


def keep_freed_memory() -> bool:
    """Keep freed blocks for reuse, in this process and those it forks; False where the C library is not glibc.

    That returns large blocks to the system, which must then clear new pages, and a network on the CPU allocates and
    frees each activation: an EfficientNet at 224 pixels runs 1.5 to 1.9 times as fast with it (two cores, float32,
    batches of 8 to 32). The process then keeps the memory of its peak. Programs call it before they start to compute;
    importing sslkit does not call it.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    libc = ctypes.CDLL(None)
    is_set = libc.mallopt(M_MMAP_THRESHOLD, KEPT) or libc.mallopt(M_MMAP_THRESHOLD, MOST_BEFORE_2_35)
    return bool(is_set and libc.mallopt(M_TRIM_THRESHOLD, KEPT))


def _is_first() -> bool:
    """Return whether this is the only process of a run, or the first one on this machine."""
    return os.environ.get("LOCAL_RANK", "0") == "0"


def _in_fork() -> None:
    for number in SIGNALS:
        if signal.getsignal(number) in (_stop, _go_on):
            signal.signal(number, _stop_child)


def _open_streams() -> None:
    """Give every standard stream that is closed a null device, and let none raise an error."""
    for number, (name, mode) in enumerate((("stdin", os.O_RDONLY), ("stdout", os.O_WRONLY), ("stderr", os.O_WRONLY))):
        try:
            os.fstat(number)
        except OSError:  # `>&-`: the next file that is opened would become the standard output
            _redirect(number, mode)
            setattr(sys, name, os.fdopen(number, "r" if number == 0 else "w", closefd=False))
    sys.stdout, sys.stderr = Lasting(sys.stdout), Lasting(sys.stderr)


def _redirect(number: int, mode: int) -> None:
    """Connect a file descriptor to the null device."""
    nowhere = os.open(os.devnull, mode)
    if nowhere != number:
        os.dup2(nowhere, number)
        os.close(nowhere)


# If a program of recipes/ was started, and not, for example, pytest; also in a spawned child.
_mains = (getattr(sys.modules.get(name), "__file__", None) for name in ("__main__", "__mp_main__"))
if any(file and Path(file).resolve().parent.name in PROGRAMS for file in _mains):
    prepare()
