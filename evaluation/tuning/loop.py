"""Fine-tuning of all protocols that train weights, on the loop of `sslkit.runtime`: one epoch, whose batches are steps.

Every draw is a function of the step, so a checkpoint is the step, the weights, the optimizer and the running loss.
N processes end with the weights of one, up to rounding and the draws of dropout, if each gets its part of every batch
and the loss is the mean over that part.
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from evaluation.tuning.checkpoint import Checkpoint
from sslkit.errors import UserError
from sslkit.runtime.checkpoint import Saving, missing_parts
from sslkit.runtime.device import generators_restored, seed_generators, seed_of
from sslkit.runtime.distributed import gather_objects, rank, union_over_ranks
from sslkit.runtime.loop import Hook, Loop, Misfit
from sslkit.runtime.processes import fabric_on
from sslkit.runtime.progress import ProgressBar

# steps between two checks of the loss; each check waits for the device, and a loss that is not finite costs so many
# steps
CHECK = 20
LINES = 10  # most lines of one training in a log: detectors train for days


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
    precision: of the network's forward pass, "float32" or "bfloat16" autocast; its outputs are float32.
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
    precision: str = "float32"
    period: int = CHECK
    check: int = CHECK


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
    *,
    state: State | None = None,
    checkpoint: Checkpoint | None,
    progress: bool | str,
) -> State:
    """Train `training.net` in place to the last step, on its device, and return the final state.

    state: filled in place; give one if the training's functions add notes to it.
    checkpoint: written every `checkpoint.seconds`, at a signal that stops the training, and after the last step. An
        existing file is resumed: on one CPU and number of threads the weights are bit-identical to those of a run that
        was not stopped.
    progress: show a bar on a terminal, else some lines; a string is its title.
    PyTorch's global generators are restored afterwards. In a process group (see `processes.py`) gradients are averaged,
    batch norm is synchronised and rank 0 writes the checkpoint.
    Raises Diverged if the loss is NaN or infinite; UserError for a checkpoint that is damaged or of another run.
    """
    device = next(training.net.parameters()).device
    state = State() if state is None else state
    checkpoint = Checkpoint() if checkpoint is None else checkpoint
    history = History(training, state)
    hooks = [Seeds(training.seed_at), history]
    if progress:
        title = progress if isinstance(progress, str) else "training"
        hooks.append(ProgressBar(title, lines=LINES, loss=lambda: history.mean))
    if checkpoint.path is not None:
        hooks.append(Saving(partial(_save, checkpoint), checkpoint.seconds))
    loop = Loop(
        fabric_on(device, training.precision),
        training.net,
        training.optimizer,
        LambdaLR(training.optimizer, training.rate),
        lambda loop: Steps(training, loop.step),
        forward=lambda net, batch, step: {"loss": training.loss(net, batch, step)},
        move=lambda batch, device: batch,
        epochs=1,
        accumulate=1,
        clip=None,
        hooks=hooks,
        saved=training.saved,
    )
    with generators_restored(device):
        try:
            loop.run(lambda: _load_state(checkpoint))
        except Misfit as error:
            where = f"{checkpoint.path} is of another network ({error.reason})"
            raise UserError(f"{where}: delete it to start anew") from error
    return state


def dropout_seed(seed: int, step: int) -> int:
    """Return the seed of PyTorch's global generators at a step; every rank has its own."""
    return seed_of("dropout", seed, step, *([rank()] if rank() else []))


class Steps:
    """The batches of a training as one epoch, which begins at step `first`."""

    def __init__(self, training: Training, first: int) -> None:
        self.training, self.first = training, first
        self.sampler = self

    def set_epoch(self, epoch: int) -> None:
        """Do nothing: the batches are a function of the step."""

    def __len__(self) -> int:
        return self.training.steps

    def __iter__(self) -> Iterator[Any]:
        return islice(self.training.batches(self.first), len(self) - self.first)


@dataclass
class Seeds(Hook):
    """Seeds the draws of each step."""

    seed_at: Callable[[int], int]

    def batch_begin(self, loop: Loop) -> None:
        seed_generators(self.seed_at(loop.step), loop.device)


class History(Hook):
    """Fills the `State` of a training, and ends one whose loss is not finite.

    mean: of the losses since the last period, at the last check; NaN before the first one.
    """

    def __init__(self, training: Training, state: State) -> None:
        self.training, self.kept, self.mean = training, state, math.nan

    def begin(self, loop: Loop) -> None:
        self.started = time.monotonic()
        if self.kept.pending is not None:
            self.kept.pending = self.kept.pending.to(loop.device)

    def batch_end(self, loop: Loop, outputs: Mapping[str, Any], batch: Any) -> None:
        training, training_state, loss = self.training, self.kept, outputs["loss"].detach()
        training_state.step = loop.step
        training_state.pending = loss if training_state.pending is None else training_state.pending + loss
        period_ends = training_state.step == training.steps or training_state.step % training.period == 0
        if period_ends or training_state.step % training.check == 0:
            self.mean = self._mean_loss(loop)
        if period_ends:
            training_state.losses.append((training_state.step, self.mean))
            training_state.pending = None
        training_state.seconds = training_state.before + time.monotonic() - self.started

    def _mean_loss(self, loop: Loop) -> float:
        """The mean over the steps of this period, of all ranks. Raises Diverged."""
        total = loop.fabric.all_reduce(self.kept.pending.clone(), reduce_op="mean").item()
        if not math.isfinite(total):
            raise Diverged(f"the loss became NaN or infinite by step {loop.step}")
        return total / ((loop.step - 1) % self.training.period + 1)

    def before_save(self, loop: Loop) -> None:
        """Gather the state of all ranks."""
        training_state = self.kept
        training_state.notes[:] = union_over_ranks(training_state.notes)
        if training_state.pending is not None:
            training_state.pending = loop.fabric.all_reduce(training_state.pending.clone(), reduce_op="mean")

    epoch_end = before_save

    def state(self) -> dict[str, Any]:
        return {name: list(value) if isinstance(value, list) else value for name, value in vars(self.kept).items()}

    def restore(self, state: dict[str, Any]) -> None:
        vars(self.kept).update(state)
        self.kept.losses = [tuple(pair) for pair in self.kept.losses]
        self.kept.before = self.kept.seconds


def _save(checkpoint: Checkpoint, state: dict[str, Any]) -> None:
    """Save a state of the loop, unless its loss has diverged."""
    pending = state["hooks"]["History"]["pending"]
    if pending is None or pending.isfinite():
        checkpoint.save(state)


def _load_state(checkpoint: Checkpoint) -> dict[str, Any] | None:
    """Return the state to go on from, None if there is none. An error is raised once all ranks know of it.

    Raises UserError as `Checkpoint.load` does, and if the ranks find different files; Misfit if a part is missing.
    """
    state, refused = None, None
    try:
        state = checkpoint.load()
    except UserError as error:
        refused = error
    if len(set(gather_objects("damaged" if refused else state and state["step"]))) > 1:
        where = f"the processes found different checkpoints in {checkpoint.path}"
        raise refused or UserError(f"{where}: all machines must share that folder")
    if refused:
        raise refused
    if state is not None and (missing := next(missing_parts(state, {"History": ("losses", "pending")}), None)):
        raise Misfit("version", f"it has no {missing}")
    return state
