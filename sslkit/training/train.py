"""One run: announce it, train it, then call `finish`."""

import os
import sys
from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any

import torch

from sslkit.composition.method import Method
from sslkit.data.images import Images
from sslkit.data.views.cropped import CroppedImages
from sslkit.errors import RunFailed, UserError
from sslkit.layers import norm_statistics
from sslkit.runtime.loop import Hook, Loop
from sslkit.runtime.waiting import together
from sslkit.terminal import say
from sslkit.training import launched, loggers, memory, origin, run, same_data
from sslkit.training.checkpoint import SaveLast
from sslkit.training.chosen import batches, steps
from sslkit.training.compiling import Compiled
from sslkit.training.config import Config
from sslkit.training.data import Data, rows_to_learn
from sslkit.training.finish import finish, judge
from sslkit.training.first_lines import announce
from sslkit.training.history import History
from sslkit.training.loading import Loading, to_device
from sslkit.training.module import Pretraining, Progress
from sslkit.training.monitor import Monitor
from sslkit.training.optimizers import make_optimizer
from sslkit.training.precision import precision
from sslkit.training.progress import Bar
from sslkit.training.requeue import Requeue
from sslkit.training.schedules import make_schedule, peak_lr
from sslkit.training.trainer import deterministic, leave_group, make_fabric, quiet
from sslkit.training.view_sheet import save_views
from sslkit.zoo.entry import ZooEntry


class Start(Hook):
    """Before the first step, on the device: save a picture of the views and evaluate the initial weights.

    init: sha256 of these weights; None for random ones.
    """

    def __init__(
        self,
        data: Data,
        shown: Images | CroppedImages,
        folder: Path,
        k: int,
        init: str | None,
        content: same_data.Content,
    ) -> None:
        self.data, self.shown, self.folder, self.k, self.init = data, shown, folder, k, init
        self.content = content
        self.judged: dict[str, float] | None = None

    def begin(self, loop: Loop) -> None:
        with together("the judgement of the first weights"):
            if loop.is_main and self.judged is None:
                save_views(loop.module.method, self.shown, self.folder / "views.png")
                self.judged = judge(loop.module.method, self.data, self.k)
                if self.data.bank is not None and not self.judged:
                    say.line(f"too few of the labelled {self.data.unit} can be read: this run is not evaluated")

    def state(self) -> dict[str, Any]:
        return {"judged": self.judged, **self.content.state(), "init": self.init}

    def restore(self, state: dict[str, Any]) -> None:
        if run.is_main():  # `Prepare` compares the processes
            self.content.check(state, self.folder)
        if state.get("init") != self.init:
            raise UserError(f"the weights of init= have changed since {self.folder} was started: start a new run")
        self.judged = state["judged"]


class Prepare(Hook):
    """Lets the regularisers read the clean images, on all ranks at the same time, once these see the same ones."""

    def __init__(self, data: Data, cache: Path, steps: int) -> None:
        self.train, self.images = data.train, data.train if data.clean is None else data.clean
        self.cache, self.steps = cache, steps

    def begin(self, loop: Loop) -> None:
        same_data.check(self.train)
        loop.module.method.prepare(self.images, cache=self.cache, steps=self.steps)


class Unreadable(Hook):
    """Collects the paths that the loader could not read."""

    def __init__(self) -> None:
        self.paths: set[str] = set()

    def batch_end(self, loop: Loop, outputs: Any, batch: Any) -> None:
        self.paths.update(batch["bad"])

    def epoch_end(self, loop: Loop) -> None:
        if loop.world_size > 1:
            ranks: list[set[str]] = [set()] * loop.world_size
            torch.distributed.all_gather_object(ranks, self.paths)
            self.paths = set().union(*ranks)

    def state(self) -> dict[str, Any]:
        return {"paths": sorted(self.paths)}

    def restore(self, state: dict[str, Any]) -> None:
        self.paths = set(state["paths"])


def train(
    config: Config, data: Data, method: Method, folder: Path, checkpoint: Path | None, asked: Config
) -> ZooEntry | None:
    """Train `method` on `data` in `folder`, from `checkpoint` if there is one. asked: the settings as given.

    Raises KeyboardInterrupt, with the way to go on, when a signal stops it.
    """
    try:
        return _train(config, data, method, folder, checkpoint, asked)
    except KeyboardInterrupt as stop:
        raise KeyboardInterrupt(f"stopped; the same command with resume=true continues {folder}") from stop


def _train(
    config: Config, data: Data, method: Method, folder: Path, checkpoint: Path | None, asked: Config
) -> ZooEntry | None:
    quiet()
    if run.is_main():
        run.sweep(folder)
    announce(config, data, method, folder, checkpoint, asked)
    loading = Loading(config, data, rows_to_learn(config, data, method, whole=method.needs_images))
    history = History(folder, loading, log_every=config.trainer.log_every)
    unreadable = Unreadable()
    # History comes before the monitor, so that its clock stops before the evaluation starts.
    monitor = Monitor(data, history, every=config.eval.every, k=config.eval.k)
    shown = rows_to_learn(config, data, method, whole=True)
    content = same_data.Content(data.train, read=run.is_main())
    start = Start(data, shown, folder, config.eval.k, origin.digest(method), content)
    module, count = Pretraining(method), steps(config, data)
    prepare = Prepare(data, Path(config.out) / ".cache", count)  # early: a prior that does not fit ends the run
    hooks = [Compiled()] if config.trainer.compile else []  # first: what it compiles is removed before kNN and probe
    hooks += [Progress(module, config.optimizer, count), prepare, start, history, monitor, unreadable, Requeue()]
    if config.trainer.progress and sys.stderr.isatty():
        hooks.append(Bar(loading))
    hooks.append(SaveLast(folder, history, checkpoint))
    loop = make_loop(config, module, loading, peak_lr(config, batches(config, data)), count, hooks)
    _fit(loop, config, data, folder, checkpoint)
    if not loop.is_main:
        return None
    with memory.explained(config, data.image_size, folder, loop):
        content.wait()
        seen = {"before": start.judged, "history": history, "unreadable": unreadable.paths}
        return finish(config, data, method, folder, **seen, computed=computed(loop, config), asked=asked)


def make_loop(
    config: Config, module: Pretraining, loading: Loading, lr: float, steps: int, hooks: Sequence[Hook]
) -> Loop:
    """The loop of a run with its optimiser. lr: at the peak. steps: of the whole run."""
    optimizer = make_optimizer(module.method, config.optimizer, lr)
    return Loop(
        make_fabric(config),
        module,
        optimizer,
        make_schedule(optimizer, steps, config.optimizer.warmup),
        loading.load,
        move=to_device,
        epochs=config.epochs,
        accumulate=config.trainer.accumulate,
        clip=config.optimizer.clip,
        around_backward=partial(norm_statistics.kept, module) if config.trainer.checkpoint_activations else nullcontext,
        hooks=hooks,
    )


def _fit(loop: Loop, config: Config, data: Data, folder: Path, checkpoint: Path | None) -> None:
    """Train, with the settings' loggers, which are finished in any case, as is the process group."""
    launched_outside = "LOCAL_RANK" in os.environ
    started: dict[str, Any] = {}
    read = None if checkpoint is None else partial(torch.load, checkpoint, map_location="cpu", weights_only=True)
    try:
        with deterministic(config), memory.explained(config, data.image_size, folder, loop):
            if run.is_main():
                started = loggers.start(config, folder)
                loop.loggers = list(started.values())
            with launched.others_watched(folder):
                loop.run(read)
    except OSError as error:  # for example from TensorBoard's writer
        raise RunFailed(f"stopped: {error.strerror or error} ({folder}); go on with resume=true") from error
    finally:
        loggers.finish(started)
        leave_group(launched_outside)


def computed(loop: Loop, config: Config) -> dict[str, Any]:
    """Return device, processes, threads of each and precision, on which the last bits of the weights depend."""
    name = torch.cuda.get_device_name(loop.device) if loop.device.type == "cuda" else loop.device.type
    number = precision(config.trainer.precision, config.trainer.accelerator)
    return {"device": name, "processes": loop.world_size, "threads": torch.get_num_threads(), "precision": number}
