"""A run that is killed at a step, for `forks.exit_code`: what it saved is all that a resumed one has."""

import os
import signal

import sslkit
from sslkit.runtime.loop import Hook, Loop
from sslkit.training import pretrain


class Die(Hook):
    """Ends the process at the end of a batch, once as many steps are done."""

    step = 0

    def batch_end(self, loop: Loop, *_: object) -> None:
        if loop.step == self.step:
            os.kill(os.getpid(), signal.SIGKILL)


def die_at(config: dict, step: int) -> None:
    """Run `sslkit.pretrain(config)` and be killed after that step, saved or not by the other hooks."""
    make, Die.step = pretrain.make_loop, step
    pretrain.make_loop = lambda *given: make(*given[:-1], [*given[-1], Die()])
    sslkit.pretrain(config)
