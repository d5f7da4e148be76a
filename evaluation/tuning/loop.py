"""The fine-tuning loop of all protocols that train weights, on Lightning Fabric.

Devices, precision, several processes, exact resume and the progress bar are written here once. Every draw is a function
of the step, so a checkpoint is the step, the weights, the optimizer and the running loss. N processes end with the
weights of one, up to rounding and the draws of dropout, if each gets its part of every batch and the loss is the mean
over that part.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn

from evaluation.tuning.checkpoint import Checkpoint
from evaluation.tuning.optimizers import set_rates
from evaluation.tuning.processes import fabric_of, from_rank_0, same_on_all_ranks, union_of_ranks
from evaluation.tuning.progress import Progress
from sslkit.errors import UserError
from sslkit.runtime.distributed import rank, synchronize_batch_norm, world_size

CHECK = 20  # steps between two checks of the loss; each check waits for the device


class Diverged(ArithmeticError):
    """The loss or the scores of a run became NaN or infinite."""


@dataclass(frozen=True, eq=False)
class Training:
    """One training.

    net: in training mode, with its batch norm layers. saved: the part of it in a checkpoint; None: all.
    optimizer: from `make_optimizer`. steps: of the whole training. rate: step -> factor of the learning rates.
    batches: first step -> this process's part of the batches from that step on.
    loss: (net, batch, step) -> loss, the mean over this process's part of the batch.
    seed_at: step -> seed of PyTorch's global generators, from which dropout draws.
    period: steps over which a mean loss is kept. check: steps between two checks of the loss.
    """

    net: nn.Module
    optimizer: torch.optim.Optimizer
    steps: int
    rate: Callable[[int], float]
    batches: Callable[[int], Iterator[Any]]
    loss: Callable[[nn.Module, Any, int], Tensor]
    seed_at: Callable[[int], int]
    saved: nn.Module | None = None
    period: int = CHECK
    check: int = CHECK

    @property
    def weights(self) -> nn.Module:
        """The module whose state a checkpoint holds."""
        return self.net if self.saved is None else self.saved


@dataclass
class State:
    """State of a training, apart from weights and optimizer.

    step: number of finished steps. losses: (step, mean loss of the period that it ends). pending: sum of the losses
    since then. notes: lines that the training adds, each once, such as files that could not be read.
    seconds: spent on training. before: of these, those before the last stop.
    """

    step: int = 0
    losses: list[tuple[int, float]] = field(default_factory=list)
    pending: Tensor | None = None
    notes: list[str] = field(default_factory=list)
    seconds: float = 0.0
    before: float = 0.0


def fit(
    training: Training,
    device: torch.device,
    *,
    state: State | None = None,
    precision: str = "float32",
    checkpoint: Checkpoint | None = None,
    progress: bool | str = True,
) -> State:
    """Train `training.net` in place to the last step, on the device, and return the final state.

    state: filled in place; give one if the training's functions add notes to it.
    precision: of the network's forward pass, "float32" or "bfloat16" autocast; its outputs are float32.
    checkpoint: written every `checkpoint.every` seconds and after the last step. An existing file is resumed: on one
        CPU and number of threads the weights are bit-identical to those of a run that was not stopped.
    progress: show a bar on a terminal; a string is its title.
    PyTorch's global generators are restored afterwards. In a process group (see `processes.py`) gradients are averaged,
    batch norm is synchronised and rank 0 writes the checkpoint.
    Raises Diverged if the loss is NaN or infinite; UserError for a checkpoint that is damaged or of another run.
    """
    run = _Run(training, device, precision, State() if state is None else state, checkpoint or Checkpoint())
    with generators_restored(device):
        run.restore()
        run.train(progress)
    run.state.notes[:] = union_of_ranks(run.state.notes)
    return run.state


class _Run:
    def __init__(
        self, training: Training, device: torch.device, precision: str, state: State, checkpoint: Checkpoint
    ) -> None:
        self.training, self.device, self.state, self.checkpoint = training, device, state, checkpoint
        net = synchronize_batch_norm(training.net, device.type) if world_size() > 1 else training.net
        self.fabric = fabric_of(device, precision)
        self.net, self.optimizer = self.fabric.setup(net, training.optimizer)

    def train(self, progress: bool | str) -> None:
        training, state = self.training, self.state
        if state.step == training.steps:
            return
        shown = Progress(progress, training.steps, state.step)
        started = saved = time.monotonic()
        for batch in shown.feed(islice(training.batches(state.step), training.steps - state.step)):
            self._step(batch)
            ended = state.step == training.steps
            period_ends = ended or state.step % training.period == 0
            if period_ends or state.step % training.check == 0:
                shown.loss = self._mean_loss()
            if period_ends:
                state.losses.append((state.step, shown.loss))
                state.pending = None
            state.seconds = state.before + time.monotonic() - started
            if self._due(time.monotonic() - saved):
                self.save()
                saved = time.monotonic()
        if state.step != training.steps:
            raise RuntimeError(f"the batches ended at step {state.step} of {training.steps}")

    def _due(self, since: float) -> bool:
        """Return whether to save now, `since` seconds after the last time; ranks agree at checks of the loss.

        Always after the last step: what follows, such as the test, may be killed too.
        """
        if self.checkpoint.path is None:
            return False
        if self.state.step == self.training.steps or world_size() == 1:
            return self.state.step == self.training.steps or since >= self.checkpoint.every
        return self.state.step % self.training.check == 0 and from_rank_0(since >= self.checkpoint.every)

    def save(self) -> None:
        """Gather the state of all ranks, and write it on rank 0; not after a loss that diverged."""
        state = self.state
        state.notes[:] = union_of_ranks(state.notes)
        if state.pending is not None:
            state.pending = self.fabric.all_reduce(state.pending.clone(), reduce_op="mean")
        if rank() == 0 and (state.pending is None or state.pending.isfinite()):
            weights, optimizer = self.training.weights.state_dict(), self.training.optimizer.state_dict()
            self.checkpoint.save({**vars(state), "weights": weights, "optimizer": optimizer})

    def restore(self) -> None:
        """Load the checkpoint, if there is one."""
        content = self._found()
        if content is None:
            return
        try:
            self.training.weights.load_state_dict(content.pop("weights"))
            self.training.optimizer.load_state_dict(content.pop("optimizer"))
        except (KeyError, ValueError, RuntimeError) as error:
            where = f"{self.checkpoint.path} is of another network"
            raise UserError(f"{where} ({str(error).splitlines()[0]}): delete it to start anew") from error
        for name, value in content.items():
            setattr(self.state, name, value.to(self.device) if isinstance(value, Tensor) else value)
        self.state.losses = [tuple(pair) for pair in self.state.losses]
        self.state.before = self.state.seconds

    def _found(self) -> dict[str, Any] | None:
        """The checkpoint's content. An error is raised once all ranks know of it, or the others would wait."""
        content, refused = None, None
        try:
            content = self.checkpoint.load()
        except UserError as error:
            refused = error
        found = "damaged" if refused else content and content["step"]
        if not same_on_all_ranks(found):
            where = f"the processes found different checkpoints in {self.checkpoint.path}"
            raise refused or UserError(f"{where}: all machines must share that folder")
        if refused:
            raise refused
        return content

    def _step(self, batch: Any) -> None:
        training, state = self.training, self.state
        set_rates(training.optimizer, training.rate(state.step))
        seed_generators(training.seed_at(state.step), self.device)
        loss = training.loss(self.net, batch, state.step)
        training.optimizer.zero_grad()
        self.fabric.backward(loss)
        self.optimizer.step()
        state.pending = loss.detach() if state.pending is None else state.pending + loss.detach()
        state.step += 1

    def _mean_loss(self) -> float:
        """The mean over the steps of this period, of all ranks. Raises Diverged."""
        total = self.fabric.all_reduce(self.state.pending.clone(), reduce_op="mean").item()
        if not math.isfinite(total):
            raise Diverged(f"the loss became NaN or infinite by step {self.state.step}")
        return total / ((self.state.step - 1) % self.training.period + 1)


def seed_generators(seed: int, device: torch.device) -> None:
    """Seed PyTorch's global generators, on the CPU and on the device."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


@contextmanager
def generators_restored(device: torch.device) -> Iterator[None]:
    """Restore PyTorch's global generators after the block, in which the device is the current one."""
    cuda = device.type == "cuda"
    with torch.cuda.device(device) if cuda else nullcontext(), torch.random.fork_rng([device] if cuda else []):
        yield
