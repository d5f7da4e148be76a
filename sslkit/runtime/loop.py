"""The loop that trains: epochs of batches on Lightning Fabric, hooks between them, and a state to resume from exactly.

A step reads the batch, computes the loss, and after `accumulate` batches moves the weights. Everything else that a run
does, such as its metrics, its checkpoints and its bar, is a hook. Nothing waits for the device inside a step.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch
from lightning_fabric import Fabric
from torch import nn

from sslkit.errors import UserError
from sslkit.runtime.distributed import synchronize_batch_norm


class Loader(Protocol):
    """Batches of one epoch after the other. sampler: its `set_epoch` chooses the order."""

    sampler: Any

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...


class Hook:
    """A part of a run that is called between the parts of its training; hooks are called in the order of their list."""

    def begin(self, loop: "Loop") -> None:
        """Called once on every process, with the weights on the device and a state that is restored."""

    def epoch_begin(self, loop: "Loop") -> None: ...

    def batch_begin(self, loop: "Loop") -> None: ...

    def before_step(self, loop: "Loop") -> None:
        """Called when all gradients of a step are there."""

    def after_step(self, loop: "Loop") -> None:
        """Called once the weights have moved; `loop.step` counts that."""

    def batch_end(self, loop: "Loop", outputs: Mapping[str, Any], batch: Any) -> None:
        """Called after every batch. outputs: of the module."""

    def epoch_end(self, loop: "Loop") -> None: ...

    def end(self, loop: "Loop") -> None:
        """Called when the training has ended, also with an error."""

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take the state of a checkpoint, before `begin`."""


class Loop:
    """One training.

    fabric: not launched yet. module: called with (batch, the number of the batch in its epoch), returns a mapping whose
        "loss" is the mean over this process's part of the batch.
    optimizer: made from the module's parameters. schedule: stepped with it. load: the loader of this process, made once
        its rank is known. move: (batch, device) -> batch.
    epochs: of the whole training. accumulate: batches of a step; the last step of an epoch may have fewer.
    clip: largest norm of a step's gradient; None for any. around_backward: makes a context for each backward pass.
    hooks: by their classes' names in checkpoints.
    epoch, batch: the current ones, from 0. step: finished steps. batches: of an epoch.
    """

    def __init__(
        self,
        fabric: Fabric,
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        schedule: torch.optim.lr_scheduler.LRScheduler,
        load: Callable[["Loop"], Loader],
        *,
        move: Callable[[Any, torch.device], Any],
        epochs: int,
        accumulate: int = 1,
        clip: float | None = None,
        around_backward: Callable[[], AbstractContextManager] = nullcontext,
        hooks: Sequence[Hook] = (),
    ) -> None:
        self.fabric, self.module, self.optimizer, self.schedule = fabric, module, optimizer, schedule
        self.load, self.move = load, move
        self.epochs, self.accumulate, self.clip, self.around_backward = epochs, accumulate, clip, around_backward
        self.hooks = list(hooks)
        self.epoch = self.batch = self.step = self.batches = 0
        self.loggers: list[Any] = []

    @property
    def device(self) -> torch.device:
        return self.fabric.device

    @property
    def rank(self) -> int:
        return self.fabric.global_rank

    @property
    def world_size(self) -> int:
        return self.fabric.world_size

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def run(self, checkpoint: Callable[[], Mapping[str, Any]] | None = None) -> None:
        """Train to the last epoch. checkpoint: reads a `state` to go on from. Raises UserError if it does not fit."""
        try:
            self.fabric.launch()
            self._train(*self._set_up(checkpoint))
        except KeyboardInterrupt:
            self._end_others()
            raise
        finally:
            for hook in self.hooks:
                hook.end(self)

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds after an epoch."""
        return {
            "epoch": self.epoch + 1,
            "step": self.step,
            "module": self.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "hooks": {type(hook).__name__: state for hook in self.hooks if (state := hook.state())},
        }

    def _set_up(self, checkpoint: Callable[[], Mapping[str, Any]] | None) -> tuple[nn.Module, Any]:
        """Restore, and return module and optimiser as Fabric wraps them; what was read is not kept."""
        state = None if checkpoint is None else checkpoint()
        if state is not None:
            self._restore_module(state)
        if self.world_size > 1:
            synchronize_batch_norm(self.module, self.device.type)
        wrapped, optimizer = self.fabric.setup(self.module, self.optimizer)
        if state is not None:
            self._restore(state)
        return wrapped, optimizer

    def _train(self, wrapped: nn.Module, optimizer: Any) -> None:
        loader = self.load(self)
        self.batches = len(loader)
        for hook in self.hooks:
            hook.begin(self)
        for epoch in range(self.epoch, self.epochs):
            self.epoch = epoch
            loader.sampler.set_epoch(epoch)
            for hook in self.hooks:
                hook.epoch_begin(self)
            for number, batch in enumerate(loader):
                self.batch = number
                for hook in self.hooks:
                    hook.batch_begin(self)
                outputs = self._step(wrapped, optimizer, self.move(batch, self.device))
                for hook in self.hooks:
                    hook.batch_end(self, outputs, batch)
            for hook in self.hooks:
                hook.epoch_end(self)

    def _step(self, wrapped: nn.Module, optimizer: Any, batch: Any) -> Mapping[str, Any]:
        """One batch; with the last one of a step the weights are moved."""
        first = self.batch - self.batch % self.accumulate
        together = min(self.accumulate, self.batches - first)  # batches of this step
        moves = self.batch + 1 == first + together
        with self.fabric.no_backward_sync(wrapped, enabled=not moves):
            outputs = wrapped(batch, self.batch)
            if self.batch == first:
                optimizer.zero_grad()
            with self.around_backward():
                self.fabric.backward(outputs["loss"] / together)
        if moves:
            self._move(wrapped, optimizer)
        return outputs

    def _move(self, wrapped: nn.Module, optimizer: Any) -> None:
        for hook in self.hooks:
            hook.before_step(self)
        if self.clip is not None:
            self.fabric.clip_gradients(wrapped, optimizer, max_norm=self.clip, error_if_nonfinite=False)
        optimizer.step()
        self.step += 1
        self.schedule.step()
        for hook in self.hooks:
            hook.after_step(self)

    def _end_others(self) -> None:
        """End the processes that this one has started: once one of them has ended, Fabric kills this one as well."""
        started = getattr(self.fabric.strategy.launcher, "procs", [])
        for process in started:
            process.kill()
            process.wait()
        started.clear()  # Fabric watches those in this list

    def _restore_module(self, state: Mapping[str, Any]) -> None:
        """Load hooks and weights, whose names are those of a single process. Raises UserError for another network."""
        for hook in self.hooks:
            if (own := state["hooks"].get(type(hook).__name__)) is not None:
                hook.restore(own)
        try:
            self.module.load_state_dict(state["module"])
        except (RuntimeError, AttributeError, TypeError, ValueError) as error:
            said = " ".join(str(error).split())[:300]
            raise UserError(f"the checkpoint is of another network or method: {said}; start a new run") from error

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Load what belongs to the weights on their device."""
        try:
            self.optimizer.load_state_dict(state["optimizer"])
        except (KeyError, ValueError) as error:
            raise UserError(f"the checkpoint is of another optimiser ({error}); start a new run") from error
        self.schedule.load_state_dict(state["schedule"])
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        self.epoch, self.step = state["epoch"], state["step"]
