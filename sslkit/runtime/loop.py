"""The loop that trains: epochs of batches on Lightning Fabric, hooks between them, and a state to resume from exactly.

A step reads the batch, computes the loss, and after `accumulate` batches moves the weights. Everything else that a run
does, such as its metrics, its checkpoints and its bar, is a hook. Nothing waits for the device inside a step.

Pretraining (`sslkit.training.pretrain.train`) has epochs of a data set. Fine-tuning (`evaluation.tuning.loop`) is one
epoch, whose batches are its steps. Both resume inside an epoch.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

import torch
from torch import nn

from sslkit.errors import UserError, first_line
from sslkit.numerics.state_dicts import mismatch
from sslkit.runtime.distributed import synchronize_batch_norm
from sslkit.runtime.heap import freed_memory_kept

if TYPE_CHECKING:  # importing it takes a second
    from lightning_fabric import Fabric

    from sslkit.runtime.loggers import Trackers


BETWEEN = ("begin", "epoch_end")  # events at which hooks read the weights


class Misfit(UserError):
    """The state of a checkpoint is of another network, method or optimiser. reason: what does not fit, in words."""

    def __init__(self, part: str, reason: str) -> None:
        super().__init__(f"the checkpoint is of another {part} ({reason}); start a new run")
        self.reason = reason


class Loader(Protocol):
    """Batches of one epoch after the other, as many as its length. sampler: its `set_epoch` chooses the order."""

    sampler: Any

    def __len__(self) -> int: ...
    def __iter__(self) -> Iterator[Any]: ...


class Hook:
    """A part of a run that is called between the parts of its training; hooks are called in the order of their list.

    A hook has a method for each event that it needs, which gets the loop:
    begin: once on every process, with the weights on the device and a state that is restored. epoch_begin, batch_begin.
    before_step: all gradients of a step are there. after_step: the weights have moved; `loop.step` counts that.
    batch_end: also gets the outputs of the module, and the batch. epoch_end.
    before_save: on every process, before a checkpoint inside an epoch. end: the training has ended, also with an error.
    """

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint keeps of it, of which nothing changes later."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Take the state of a checkpoint, before `begin`."""


class Loop:
    """One training.

    fabric: not launched yet. module: what is trained. forward: (the module as Fabric wraps it, batch, the number of the
        batch in its epoch) -> a mapping whose "loss" is the mean over this process's part of the batch; by default a
        call of the module.
    optimizer: made from the module's parameters. schedule: stepped with it; None where a hook sets the rates.
    load: the loader of this process, made once its rank is known and the state restored; the first epoch that it is
        asked for begins at `loop.batch`. move: (batch, device) -> batch.
    epochs: of the whole training. accumulate: batches of a step; the last step of an epoch may have fewer.
    clip: largest norm of a step's gradient; None for any. around_backward: makes a context for each backward pass.
    hooks: by their classes' names in checkpoints. saved: the part of the module in checkpoints; None: all.
    epoch, batch: the current ones, from 0. step: finished steps. batches: of an epoch. processes: of the checkpoint.
    waited: seconds spent in getting batches.
    """

    def __init__(
        self,
        fabric: "Fabric",
        module: nn.Module,
        optimizer: torch.optim.Optimizer,
        schedule: torch.optim.lr_scheduler.LRScheduler | None,
        load: Callable[["Loop"], Loader],
        *,
        forward: Callable[[nn.Module, Any, int], Mapping[str, Any]] = nn.Module.__call__,
        move: Callable[[Any, torch.device], Any],
        epochs: int,
        accumulate: int,
        clip: float | None,
        around_backward: Callable[[], AbstractContextManager] = nullcontext,
        hooks: Sequence[Hook] = (),
        saved: nn.Module | None = None,
    ) -> None:
        self.fabric, self.module, self.optimizer, self.schedule = fabric, module, optimizer, schedule
        self.saved = module if saved is None else saved
        self.load, self.forward, self.move = load, forward, move
        self.epochs, self.accumulate, self.clip, self.around_backward = epochs, accumulate, clip, around_backward
        self.hooks = list(hooks)
        self.epoch = self.batch = self.step = self.batches = 0
        self.waited = 0.0
        self.processes: int | None = None
        self.trackers: Trackers | None = None  # of the first process
        self._next = (0, 0)  # epoch and batch to go on from
        self._ending: dict[str, Any] = {}
        self._whole_optimizer: dict[str, Any] | None = None

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

    def run(self, checkpoint: Callable[[], Mapping[str, Any] | None] | None) -> None:
        """Train to the last epoch. checkpoint: reads a `state` to go on from, if there is one. Raises Misfit."""
        try:
            self.fabric.launch()
            with freed_memory_kept() if self.device.type == "cpu" else nullcontext():
                self._train(*self._set_up(checkpoint))
        except (KeyboardInterrupt, SystemExit):
            self._end_others()
            raise
        finally:
            self._tell("end")

    @property
    def is_between_steps(self) -> bool:
        """Return whether the current batch moves the weights, so that after it there is a state to go on from."""
        return (self.batch + 1) % self.accumulate == 0 or self.batch + 1 == self.batches

    def save(self, write: Callable[[dict[str, Any]], None]) -> None:
        """Let the first process write the state between two steps; all processes call this."""
        self._tell("before_save")
        with self._whole() if self._in_shares else nullcontext():
            if self.is_main:
                write(self.state_before_end())

    @property
    def is_whole(self) -> bool:
        """Return whether this process can read all weights and the optimiser's state without the others."""
        return not self._in_shares or self._whole_optimizer is not None

    def state(self) -> dict[str, Any]:
        """Return what a checkpoint holds after an epoch, or at the end of a batch that moved the weights.

        The epoch of the last batch has still to be ended: its "batch" is the number of batches.
        """
        epoch, batch = self._next
        return {
            "epoch": epoch,
            "batch": batch,
            "step": self.step,
            "processes": self.world_size,
            "module": self.saved.state_dict(),
            "buffers": self._buffers_left_out(),
            "optimizer": self._whole_optimizer or self.optimizer.state_dict(),
            "schedule": {} if self.schedule is None else self.schedule.state_dict(),
            "precision": self.fabric.strategy.precision.state_dict(),
            "hooks": self._states(),
        }

    def state_before_end(self) -> dict[str, Any]:
        """Like `state`, but while hooks end an epoch the one before it: to be written where they are stopped."""
        return {**self.state(), **self._ending}

    def _states(self) -> dict[str, dict[str, Any]]:
        return {type(hook).__name__: state for hook in self.hooks if (state := hook.state())}

    def _buffers_left_out(self) -> dict[str, torch.Tensor]:
        """The buffers that PyTorch leaves out of a state dict: some change with every batch."""
        saved = self.saved.state_dict()
        return {name: value for name, value in self.saved.named_buffers() if name not in saved}

    def _set_up(self, checkpoint: Callable[[], Mapping[str, Any] | None] | None) -> tuple[nn.Module, Any]:
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
        self._tell("begin")
        while self.epoch < self.epochs:
            loader.sampler.set_epoch(self.epoch)
            self._tell("epoch_begin")
            for number, batch in enumerate(self._time_batches(loader), self.batch):
                self.batch = number
                self._tell("batch_begin")
                outputs = self._step(wrapped, optimizer, self.move(batch, self.device))
                self._next = self.epoch, number + 1
                self._tell("batch_end", outputs, batch)
            if self._next != (self.epoch, self.batches):
                raise RuntimeError(f"the batches ended at step {self._next[1]} of {self.batches}")
            self._end_epoch()
        if self._in_shares:
            self.fabric.strategy.end(self.module)

    def _time_batches(self, loader: Loader) -> Iterator[Any]:
        """Yield the batches of an epoch, and measure how long each is waited for."""
        batches = iter(loader)
        while True:
            start = time.perf_counter()
            batch = next(batches, None)
            self.waited += time.perf_counter() - start
            if batch is None:
                return
            yield batch

    def _end_epoch(self) -> None:
        self._ending = {"epoch": self.epoch, "batch": self.batches, "hooks": self._states()}
        self._next = self.epoch + 1, 0
        self._tell("epoch_end")
        self._ending = {}
        self.epoch, self.batch = self._next

    def _step(self, wrapped: nn.Module, optimizer: Any, batch: Any) -> Mapping[str, Any]:
        """One batch; with the last one of a step the weights are moved."""
        first = self.batch - self.batch % self.accumulate
        together = min(self.accumulate, self.batches - first)  # batches of this step
        moves = self.batch + 1 == first + together
        with self.fabric.no_backward_sync(wrapped, enabled=not moves):
            outputs = self.forward(wrapped, batch, self.batch)
            if self.batch == first:
                optimizer.zero_grad()
            with self.around_backward():
                self.fabric.backward(outputs["loss"] / together)
        if not moves:
            return outputs
        self._tell("before_step")
        if self.clip is not None:
            self.fabric.clip_gradients(wrapped, optimizer, max_norm=self.clip, error_if_nonfinite=False)
        optimizer.step()
        self.step += 1
        if self.schedule is not None:
            self.schedule.step()
        self._tell("after_step")
        return outputs

    def _tell(self, event: str, *given: Any) -> None:
        """Call the hooks that have a method for the event."""
        with self._whole() if event in BETWEEN and self._in_shares else nullcontext():
            for hook in self.hooks:
                if call := getattr(hook, event, None):
                    call(self, *given)

    @property
    def _in_shares(self) -> bool:
        """Return whether each process has a share of the weights, see `sslkit.runtime.sharded`."""
        return hasattr(self.fabric.strategy, "share_state")

    @contextmanager
    def _whole(self) -> Iterator[None]:
        """The weights whole on all processes, and the optimiser's state on the first."""
        with self.fabric.strategy.whole(self.module, self.optimizer) as self._whole_optimizer:
            yield
        self._whole_optimizer = None

    def _end_others(self) -> None:
        """End the processes that this one has started: once one of them has ended, Fabric kills this one as well."""
        started = getattr(self.fabric.strategy.launcher, "procs", [])
        for process in started:
            process.kill()
            process.wait()
        started.clear()  # Fabric watches those in this list

    def _restore_module(self, state: Mapping[str, Any]) -> None:
        """Load hooks and weights, whose names are those of a single process. Raises Misfit for another network."""
        for hook in self.hooks:
            if (saved_hook := state["hooks"].get(type(hook).__name__)) is not None:
                hook.restore(saved_hook)
        try:
            self.saved.load_state_dict(state["module"])
            for name, value in self._buffers_left_out().items():
                value.copy_(state.get("buffers", {}).get(name, value))
        except (RuntimeError, AttributeError, TypeError, ValueError) as error:
            reason = mismatch(
                self.saved.state_dict() | self._buffers_left_out(), state["module"] | state.get("buffers", {})
            )
            raise Misfit("network or method", reason or first_line(error)) from error

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Load what belongs to the weights on their device."""
        try:
            for group, saved in zip(self.optimizer.param_groups, state["optimizer"]["param_groups"], strict=False):
                saved |= {name: group[name] for name in ("fused", "foreach") if name in group}  # of this device
            self.optimizer.load_state_dict(state["optimizer"])
        except (KeyError, ValueError) as error:
            raise Misfit("optimiser", first_line(error)) from error
        if self._in_shares:
            self.fabric.strategy.share_state(self.optimizer)
        if self.schedule is not None:
            self.schedule.load_state_dict(state["schedule"])
        self.fabric.strategy.precision.load_state_dict(state["precision"])
        self.epoch, self.batch = self._next = state["epoch"], state["batch"]
        self.step, self.processes = state["step"], state.get("processes")
