"""One run: announce it, train it with Lightning, then call `finish`."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.loggers import Logger

from sslkit.composition.method import Method
from sslkit.data.images import Images
from sslkit.data.views.cropped import CroppedImages
from sslkit.errors import RunFailed, UserError
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
from sslkit.training.loading import Loading
from sslkit.training.module import Pretraining
from sslkit.training.monitor import Monitor
from sslkit.training.progress import Bar
from sslkit.training.recomputing import Recomputed
from sslkit.training.requeue import Requeue
from sslkit.training.schedules import peak_lr
from sslkit.training.trainer import deterministic, leave_group, make_trainer, quiet
from sslkit.training.view_sheet import save_views
from sslkit.zoo.entry import ZooEntry


class Start(pl.Callback):
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

    def on_fit_start(self, trainer: pl.Trainer, module: Pretraining) -> None:
        with together("the judgement of the first weights"):
            if trainer.is_global_zero and self.judged is None:
                save_views(module.method, self.shown, self.folder / "views.png")
                self.judged = judge(module.method, self.data, self.k)
                if self.data.bank is not None and not self.judged:
                    say.line(f"too few of the labelled {self.data.unit} can be read: this run is not evaluated")

    def state_dict(self) -> dict[str, Any]:
        return {"judged": self.judged, **self.content.state(), "init": self.init}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if run.is_main():  # `Prepare` compares the processes
            self.content.check(state, self.folder)
        if state.get("init") != self.init:
            raise UserError(f"the weights of init= have changed since {self.folder} was started: start a new run")
        self.judged = state["judged"]


class Prepare(pl.Callback):
    """Lets the regularisers read the clean images, on all ranks at the same time, once these see the same ones."""

    def __init__(self, data: Data, cache: Path) -> None:
        self.train, self.images = data.train, data.train if data.clean is None else data.clean
        self.cache = cache

    def on_fit_start(self, trainer: pl.Trainer, module: Pretraining) -> None:
        same_data.check(self.train)
        module.method.prepare(self.images, cache=self.cache, steps=module.steps)


class Unreadable(pl.Callback):
    """Collects the paths that the loader could not read."""

    def __init__(self) -> None:
        self.paths: set[str] = set()

    def on_train_batch_end(
        self, trainer: pl.Trainer, module: pl.LightningModule, outputs: Any, batch: Any, *_: Any
    ) -> None:
        self.paths.update(batch["bad"])

    def on_train_epoch_end(self, trainer: pl.Trainer, module: pl.LightningModule) -> None:
        if trainer.world_size > 1:
            ranks: list[set[str]] = [set()] * trainer.world_size
            torch.distributed.all_gather_object(ranks, self.paths)
            self.paths = set().union(*ranks)

    def state_dict(self) -> dict[str, Any]:
        return {"paths": sorted(self.paths)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.paths = set(state["paths"])


def train(
    config: Config, data: Data, method: Method, folder: Path, checkpoint: Path | None, asked: Config
) -> ZooEntry | None:
    """Train `method` on `data` in `folder`, from `checkpoint` if there is one. asked: the settings as given.

    Raises KeyboardInterrupt, with the way to go on, when a signal stops it.
    """
    try:
        return _train(config, data, method, folder, checkpoint, asked)
    except (KeyboardInterrupt, SystemExit) as stop:
        if isinstance(stop, SystemExit) and not isinstance(stop.__context__, KeyboardInterrupt):  # not Lightning's
            raise
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
    monitor = Monitor(data, history, every=config.eval.every, k=config.eval.k)
    # History comes before the monitor, so that its clock stops before the evaluation starts.
    shown = rows_to_learn(config, data, method, whole=True)
    content = same_data.Content(data.train, read=run.is_main())
    start = Start(data, shown, folder, config.eval.k, origin.digest(method), content)
    prepare = Prepare(data, Path(config.out) / ".cache")  # first: a prior that does not fit the data ends the run
    callbacks = [prepare, start, history, monitor, unreadable, Requeue(), *_asked_for(config, loading)]
    if config.trainer.compile:
        callbacks.insert(0, Compiled())  # removed before kNN and probe
    trainer = make_trainer(config, folder, [*callbacks, SaveLast(folder, history, checkpoint)])
    module = Pretraining(method, config.optimizer, lr=peak_lr(config, batches(config, data)), steps=steps(config, data))
    _fit(trainer, module, loading, folder, checkpoint)
    if not trainer.is_global_zero:
        return None
    with memory.explained(config, data.image_size, folder, trainer, module):
        module.to(trainer.strategy.root_device)  # Lightning leaves it on the CPU
        content.wait()
        seen = {"before": start.judged, "history": history, "unreadable": unreadable.paths}
        return finish(config, data, method, folder, **seen, computed=computed(trainer), asked=asked)


def _fit(trainer: pl.Trainer, module: Pretraining, loading: Loading, folder: Path, checkpoint: Path | None) -> None:
    """Fit `module`, with the settings' loggers, which are finished in any case, as is the process group."""
    config = loading.config
    launched_outside = "LOCAL_RANK" in os.environ
    started: dict[str, Logger] = {}
    try:
        with deterministic(config), memory.explained(config, loading.data.image_size, folder, trainer, module):
            if run.is_main():
                started = loggers.start(config, folder)
                trainer.loggers = list(started.values())
            with launched.others_watched(folder):
                trainer.fit(module, loading, ckpt_path=checkpoint, weights_only=True)
    except OSError as error:  # for example from TensorBoard's writer
        raise RunFailed(f"stopped: {error.strerror or error} ({folder}); go on with resume=true") from error
    finally:
        loggers.finish(started)
        leave_group(launched_outside)


def computed(trainer: pl.Trainer) -> dict[str, Any]:
    """Return device, processes, threads of each and precision, on which the last bits of the weights depend."""
    on = trainer.strategy.root_device
    name = torch.cuda.get_device_name(on) if on.type == "cuda" else on.type
    threads, precision = torch.get_num_threads(), str(trainer.precision)
    return {"device": name, "processes": trainer.world_size, "threads": threads, "precision": precision}


def _asked_for(config: Config, loading: Loading) -> Iterator[pl.Callback]:
    """Yield the callbacks of the settings that need one."""
    if config.trainer.checkpoint_activations:
        yield Recomputed()
    if config.trainer.progress and sys.stderr.isatty():
        yield Bar(loading)
