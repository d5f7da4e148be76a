"""Ranks that wait for each other as long as it takes, but not for one that has failed or died.

A collective or a barrier of torch.distributed ends with an error after a time that is fixed when the group is made (10
or 30 minutes by default), and decoding a data set may take longer. Here the ranks meet in the key-value store of the
group instead: each says that it is alive until all have ended their work. With one process nothing is waited for.
"""

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch.distributed as dist

from sslkit.errors import RunFailed, UserError
from sslkit.runtime.distributed import rank, world_size

# seconds without a sign of life after which a rank counts as dead: far above a step or a stall of a disk
SILENCE = 600.0
_LOOK = 0.02  # seconds between two looks into the store at first, _RARELY later on
_RARELY = 0.2  # seconds: below what a person notices, and a few questions a second to the store
APART = 1.0  # seconds between two orders: what a signal waits, far below the half minute that schedulers leave
_LAST_WORDS = 5.0  # seconds that a failed rank leaves the others to read why


class OthersStopped(RunFailed):
    """Another rank has failed or died; it says why itself."""


class Others:
    """The other ranks of one meeting. The first watches over all of them, and they over the first."""

    def __init__(self, work: str) -> None:
        self._work = work
        self._store = dist.distributed_c10d._get_default_store()
        with self._translate_errors():
            # Counted in the store, so that the ranks of a new group begin at the same number.
            number = self._store.add(f"sslkit/waiting/{rank()}", 1)
        self._prefix = f"sslkit/waiting/{number}"
        self._came = self._met = False
        self._ended = threading.Event()
        self._pulse = threading.Thread(target=self._beat, daemon=True)
        self._pulse.start()

    def check(self) -> None:
        """Raise UserError if one of them has failed. For use within long work, as often as one likes."""
        with self._translate_errors():
            failed = self._store.check([self._key("failed")])
            who, why = json.loads(self._store.get(self._key("failed"))) if failed else (rank(), "")
            if who != rank():
                self._store.add(self._key("heard"), 1)
        if who != rank():
            raise OthersStopped(f"process {who} has stopped in {self._work}: {why}")

    def meet(self) -> None:
        """Return when all of them have come here. Raises UserError if one fails or dies before."""
        with self._translate_errors():
            came = self._store.add(self._key("done"), int(not self._came))
        self._came = True
        pause, looked = _LOOK, time.monotonic()
        watched = range(1, world_size()) if rank() == 0 else (0,)
        signs = dict.fromkeys(watched, (0, looked))  # number of its beats, and when it changed
        while came < world_size():
            self.check()
            if time.monotonic() - looked > SILENCE / 30:
                looked = time.monotonic()
                signs = {other: self._sign(other, *sign) for other, sign in signs.items()}
            time.sleep(pause)
            pause = min(1.2 * pause, _RARELY)
            with self._translate_errors():
                came = self._store.add(self._key("done"), 0)
        self._met = True

    def tell(self, error: BaseException) -> None:
        """Tell them that this rank has failed, and stay until they know, a few seconds at most."""
        why = " ".join(str(error).split()) or type(error).__name__
        with suppress(UserError), self._translate_errors():
            if self._store.check([self._key("failed")]):
                self._store.add(self._key("heard"), 1)
            else:
                self._store.set(self._key("failed"), json.dumps([rank(), why]))
            end = time.monotonic() + _LAST_WORDS
            waits = isinstance(error, Exception) and not isinstance(error, OthersStopped)
            while waits and time.monotonic() < end:
                if self._store.add(self._key("heard"), 0) >= world_size() - 1:
                    return
                time.sleep(_LOOK)

    def say(self, value: Any) -> None:
        """Leave a value, of the kinds that JSON knows, for `value_of`."""
        with self._translate_errors():
            self._store.set(self._key("said", rank()), json.dumps(value))

    def value_of(self, by: int) -> Any:
        """The value of a rank that called `say`; after `meet`."""
        with self._translate_errors():
            return json.loads(self._store.get(self._key("said", by)))

    def leave(self) -> None:
        """Give no more signs of life. After `meet` the first rank stays until the others have left.

        With it the store may go, which they still look into.
        """
        if self._met:
            end = time.monotonic() + SILENCE
            with suppress(UserError), self._translate_errors():
                left = self._store.add(self._key("left"), 1)
                while rank() == 0 and left < world_size() and time.monotonic() < end:
                    time.sleep(_LOOK)
                    left = self._store.add(self._key("left"), 0)
        self._ended.set()
        self._pulse.join()

    def _key(self, *names: object) -> str:
        return "/".join([self._prefix, *map(str, names)])

    def _beat(self) -> None:
        with suppress(Exception):  # the store has gone: the rank finds out when it meets the others
            while not self._ended.wait(SILENCE / 60):
                self._store.add(self._key("beats", rank()), 1)

    def _sign(self, other: int, beats: int, when: float) -> tuple[int, float]:
        """The number of its beats, and when it changed. Raises UserError if that is too long ago."""
        with self._translate_errors():
            seen = self._store.add(self._key("beats", other), 0)
        if seen != beats:
            return seen, time.monotonic()
        if time.monotonic() - when > SILENCE:
            raise OthersStopped(
                f"process {other} gave no sign of life for {SILENCE:.0f} s in {self._work}: it was killed or hangs; "
                "its own last lines may say why"
            )
        return beats, when

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Turn errors of the store, which the first process holds, into a UserError."""
        try:
            yield
        except RuntimeError as error:
            raise OthersStopped(
                f"lost the connection to the first process in {self._work}: it has ended; its last lines say why"
            ) from error


class _Alone:
    """The others of a single process."""

    def check(self) -> None:
        """Return: there is nobody to fail."""


@contextmanager
def together(work: str) -> Iterator[Others | _Alone]:
    """Leave the block when all ranks have ended it; every rank must enter it.

    work: what is done, for messages. Yields the others, whose `check` ends long work early when one of them fails.
    Raises UserError on the other ranks if one raises an error, or gives no sign of life for `SILENCE` seconds.
    """
    if world_size() == 1:
        yield _Alone()
        return
    others = Others(work)
    try:
        try:
            yield others
        except BaseException as error:
            others.tell(error)
            raise
        others.meet()
    finally:
        others.leave()


def from_first(work: str, function: Callable[[], Any]) -> Any:
    """The value of function(), called by the first rank only; of the kinds that JSON knows. Raises as `together`."""
    if world_size() == 1:
        return function()
    with together(work) as others:
        if rank() == 0:
            others.say(function())
        others.meet()
        return others.value_of(0)


def from_all(work: str, value: Any) -> list[Any]:
    """The value of each rank, in order; of the kinds that JSON knows. Raises as `together`."""
    if world_size() == 1:
        return [value]
    with together(work) as others:
        others.say(value)
        others.meet()
        return [others.value_of(other) for other in range(world_size())]


class Orders:
    """What the first process orders all to do between two steps; they read it in the store, without a collective.

    They look again after as many steps as take about so many seconds, so that a step costs nothing.
    seconds: between two looks, at most `APART`.
    """

    def __init__(self, seconds: float) -> None:
        self._apart = min(seconds, APART)
        self._store = dist.distributed_c10d._get_default_store()
        self._prefix = f"sslkit/orders/{self._store.add(f'sslkit/orders/{rank()}', 1)}"
        self._number = self._next = 0
        self._looked: tuple[int, float] | None = None  # step, and when
        self._has_asked = False

    def ask(self) -> None:
        """Ask the first process for the order, once."""
        if not self._has_asked:
            self._store.set(f"{self._prefix}/asked", "")
            self._has_asked = True

    def given(self, step: int, due: Callable[[], bool], *, now: bool = False) -> bool:
        """Return whether it is ordered. All processes call this after every step.

        due: whether the first process gives the order; it also does if any process asked. now: look in any case.
        """
        if step < self._next and not now:
            return False
        self._number += 1
        key = f"{self._prefix}/{self._number}"
        if rank() == 0:
            is_asked = self._store.check([f"{self._prefix}/asked"])
            if is_asked:
                self._store.delete_key(f"{self._prefix}/asked")
            is_given = is_asked or due()
            self._store.set(key, f"{int(is_given)} {self._steps_apart(step)}")
        is_given, apart = map(int, self._store.get(key).split())
        self._next = step + apart
        self._has_asked &= not is_given
        return bool(is_given)

    def _steps_apart(self, step: int) -> int:
        now = time.monotonic()
        before, when = self._looked or (step, now)
        self._looked = step, now
        return max(1, int(self._apart * (step - before) / max(now - when, 1e-3)))
