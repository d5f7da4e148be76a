"""Signals that end a training: they are obeyed between two steps, when its state can be saved."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Stops:
    """Handlers of signals, from `begin` to `end`; a signal waits for the end of a step, a second one does not.

    save: saves the state of this moment, if it can be; it is called before a signal is obeyed outside a step.
    special: handlers of further signals. To obey another one is what would have happened without this: the handler
    before is called; where there was none, the process ends, with the usual exit code 128 + number.
    busy: whether a step is being computed. asked: the signal that waits; None: none does.
    """

    def __init__(self, save: Callable[[], None], special: Mapping[int, Callable[[], None]]) -> None:
        self.save, self.special = save, special
        self.busy = False
        self.asked: int | None = None
        self._before: dict[int, Any] = {}
        self._process = os.getpid()

    def begin(self) -> None:
        """Put the handlers in place, where Python lets a thread do that; an ignored signal stays ignored."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._process = os.getpid()
        for number in (*SIGNALS, *self.special):
            if signal.getsignal(number) not in (signal.SIG_IGN, None):
                self._before[number] = signal.signal(number, self._receive)

    def end(self) -> None:
        """Put the handlers of before back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def obey(self, number: int) -> None:
        """Do what the signal asks for; returns if training goes on all the same."""
        self.asked = None
        if number in self.special:
            self.special[number]()
        elif callable(handler := self._before[number]):
            handler(number, None)
        else:
            sys.exit(128 + number)

    def _receive(self, number: int, frame: FrameType | None) -> None:
        if os.getpid() != self._process:  # a worker forked meanwhile
            if number != signal.SIGINT:  # Ctrl-C reaches the parent too, which ends its workers
                os._exit(128 + number)
            return
        if self.busy and self.asked is None:
            self.asked = number
            return
        if not self.busy:
            self.busy = True
            self.save()
            self.busy = False
        self.obey(number)
