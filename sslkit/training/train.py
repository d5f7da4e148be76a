"""One run: announce it, train it with Lightning, then call `finish`."""

import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.accelerators import CPUAccelerator
from pytorch_lightning.loggers import TensorBoardLogger
from pytorch_lightning.strategies import DDPStrategy
from pytorch_lightning.utilities.exceptions import MisconfigurationException

from sslkit import backbones, members, say
from sslkit.data.cropped import CroppedImages
from sslkit.data.decoded import DecodedImages
from sslkit.data.images import Images
from sslkit.errors import UserError
from sslkit.method import Method, parse
from sslkit.training import origin, run
from sslkit.training.checkpoint import SaveLast
from sslkit.training.config import Config
from sslkit.training.data import Data, rows_to_learn
from sslkit.training.finish import finish, judge
from sslkit.training.history import MOST_STEPS, History
from sslkit.training.loading import Loading
from sslkit.training.module import Pretraining
from sslkit.training.monitor import Monitor
from sslkit.training.progress import Bar
from sslkit.training.view_sheet import save_views
from sslkit.zoo.entry import ZooEntry


class Start(pl.Callback):
    """Before the first step, on the device: save a picture of the views and evaluate the initial weights.

    init: sha256 of these weights; None for random ones.
    """

    def __init__(self, data: Data, shown: Images | CroppedImages, folder: Path, k: int, init: str | None) -> None:
        self.data, self.shown, self.folder, self.k, self.init = data, shown, folder, k, init
        self.judged: dict[str, float] | None = None

    def on_fit_start(self, trainer: pl.Trainer, module: Pretraining) -> None:
        if trainer.is_global_zero and self.judged is None:
            save_views(module.method, self.shown, self.folder / "views.png")
            self.judged = judge(module.method, self.data, self.k)

    def state_dict(self) -> dict[str, Any]:
        return {"judged": self.judged, "digest": self.data.train.digest, "init": self.init}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        if state["digest"] != self.data.train.digest:
            raise UserError(f"the images have changed since {self.folder} was started: start a new run")
        if state.get("init") != self.init:
            raise UserError(f"the weights of init= have changed since {self.folder} was started: start a new run")
        self.judged = state["judged"]


class Prepare(pl.Callback):
    """Lets the regularisers read the clean images: rank 0 first, the others then use its files."""

    def __init__(self, data: Data, cache: Path) -> None:
        self.images = data.train if data.clean is None else data.clean
        self.cache = cache

    def on_fit_start(self, trainer: pl.Trainer, module: Pretraining) -> None:
        for turn in (True, False):
            if trainer.is_global_zero is turn:
                module.method.prepare(self.images, cache=self.cache, steps=module.steps)
            trainer.strategy.barrier()


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


def train(config: Config, data: Data, method: Method, folder: Path, checkpoint: Path | None) -> ZooEntry | None:
    """Train `method` on `data` in `folder`, from `checkpoint` if there is one."""
    _quiet()
    if run.is_main():
        run.sweep(folder)
    announce(config, data, method, folder, checkpoint)
    loading = Loading(config, data, rows_to_learn(config, data, method, whole=method.needs_images))
    history = History(folder, loading, log_every=config.trainer.log_every)
    unreadable = Unreadable()
    monitor = Monitor(data, history, every=config.eval.every, k=config.eval.k)
    # History comes before the monitor, so that its clock stops before the evaluation starts.
    shown = rows_to_learn(config, data, method, whole=True)
    start = Start(data, shown, folder, config.eval.k, origin.digest(method))
    callbacks = [start, Prepare(data, Path(config.out) / ".cache"), history, monitor, unreadable]
    if config.trainer.progress and sys.stderr.isatty():
        callbacks.append(Bar(loading))
    trainer = make_trainer(config, folder, [*callbacks, SaveLast(folder, history, checkpoint)])
    launched_outside = "LOCAL_RANK" in os.environ
    batches = len(data.train) // config.data.batch_size
    module = Pretraining(method, config.optimizer, steps=config.epochs * -(-batches // config.trainer.accumulate))
    try:
        trainer.fit(module, loading, ckpt_path=checkpoint, weights_only=True)
    except OSError as error:  # for example from TensorBoard's writer
        raise UserError(f"stopped: {error.strerror or error} ({folder}); go on with resume=true") from error
    except SystemExit:  # raised by Lightning on Ctrl+C
        if trainer.interrupted and trainer.is_global_zero:
            print(f"interrupted; the same command with resume=true continues {folder}", file=sys.stderr)
        raise
    finally:
        _leave_group(launched_outside)
    if not trainer.is_global_zero:
        return None
    module.to(trainer.strategy.root_device)  # Lightning leaves it on the CPU
    return finish(config, data, method, folder, before=start.judged, history=history, unreadable=unreadable.paths)


def check_trainer(config: Config) -> None:
    """Raises UserError for settings that Lightning refuses, and for a batch that the ranks cannot share evenly."""
    _quiet()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `train` makes it again and shows them
            trainer = make_trainer(config, Path(config.out), [])
    except (MisconfigurationException, ValueError, TypeError, OverflowError) as error:
        raise UserError(f"trainer: {str(error).strip().splitlines()[0]}") from error
    if config.trainer.precision == "16-mixed" and isinstance(trainer.accelerator, CPUAccelerator):
        raise UserError("trainer.precision=16-mixed needs a GPU; on a CPU use bf16-mixed or 32-true")
    if config.data.batch_size % trainer.world_size:
        raise UserError(
            f"data.batch_size={config.data.batch_size} cannot be shared evenly by {trainer.world_size} processes"
        )


def make_trainer(config: Config, folder: Path, callbacks: list[pl.Callback]) -> pl.Trainer:
    """Lightning's Trainer with our settings; everything else keeps Lightning's default."""
    t = config.trainer
    return pl.Trainer(
        accelerator=t.accelerator,
        devices=_devices(config),
        num_nodes=t.num_nodes,
        strategy=_strategy(config),
        precision=precision(t.precision, t.accelerator),
        max_epochs=config.epochs,
        accumulate_grad_batches=t.accumulate,
        gradient_clip_val=config.optimizer.clip,
        callbacks=callbacks,
        logger=TensorBoardLogger(folder, name="", version=""),
        log_every_n_steps=MOST_STEPS if t.log_every == "auto" else t.log_every,
        use_distributed_sampler=False,
        enable_checkpointing=True,
        enable_progress_bar=any(isinstance(c, Bar) for c in callbacks),
        enable_model_summary=False,
    )


def precision(asked: str, accelerator: str) -> str:
    """`auto`: bf16 on a GPU that has it, else fp32.

    Never on the CPU, even where it has bf16: oneDNN's bf16 weight gradient of a convolution on small maps (torch 2.15,
    AMX, two threads) sometimes reads uninitialised memory, which ends in a NaN. It can still be set explicitly.
    """
    if asked != "auto":
        return asked
    if accelerator in ("auto", "gpu", "cuda") and torch.cuda.is_available():
        return "bf16-mixed" if torch.cuda.is_bf16_supported(including_emulation=False) else "32-true"
    return "32-true"


def announce(config: Config, data: Data, method: Method, folder: Path, checkpoint: Path | None) -> None:
    """Print the first lines of a run: method, data and every choice made automatically."""
    if not run.is_main():
        return
    body = method.backbone
    train = data.train
    use = "to learn from" if method.objective.needs_labels else "only to judge"
    known = train.labels is not None and (data.bank is not None or method.objective.needs_labels)
    labels = f"{len(train.classes)} classes ({use})" if known else "no labels"
    size = f"{data.image_size} px, {train.channels} channel{'s' if train.channels > 1 else ''}"
    parameters = sum(p.numel() for p in body.parameters()) / 1e6
    lines = [
        f"{'resuming' if checkpoint else 'run'}       {folder}",
        f"method    {method.name}, seed {config.seed}",
        f"data      {config.data.source}: {len(train):,} {data.unit}, {size}, {labels}",
        *_clips(data),
        *_detail(config, data, method),
        *origin.lines(method),
        f"backbone  {body.recipe.name}{_chosen(config, method, data)}: {parameters:.2f} M parameters, "
        f"{body.width} features, stem {body.recipe.stem}",
        f"training  {config.epochs} epochs of {len(train) // config.data.batch_size} steps x {config.data.batch_size} "
        f"{data.unit}, {config.optimizer.name}, {precision(config.trainer.precision, config.trainer.accelerator)}",
    ]
    lines += [f"{name:<9} {text}" for name, text in method.describe().items()]
    lines += _oversized(config, method, data)
    say.line("\n".join(lines))


def _chosen(config: Config, method: Method, data: Data) -> str:
    """A note if the network was chosen automatically."""
    fitting = backbones.default(method.objective.families[0], data.image_size, method.backbone.frames)
    asked = config.backbone != "auto" or config.init or method.backbone.recipe.name != fitting
    return "" if asked else f" (for {parse(method.name)[0]} at {data.image_size} px)"


def _clips(data: Data) -> list[str]:
    """A line on the clips read from each video."""
    if data.clips is None:
        return []
    train = data.train
    return [
        f"clips     {data.clips} of each video in a step, {train.frames} frames, stride {train.options.stride}, "
        f"decoded by {train.reader.name}"
    ]


def _detail(config: Config, data: Data, method: Method) -> list[str]:
    """A line on the pictures that the views of image files are cut from."""
    if isinstance(rows_to_learn(config, data, method, whole=False), CroppedImages):
        return ["views     full detail: cut from the files while decoding (data.detail=full)"]
    if isinstance(data.train, DecodedImages):
        side = data.train.image_size
        return [f"views     fast: cut from copies of {side} x {side} pixels (data.detail=fast)"]
    return []


def _oversized(config: Config, method: Method, data: Data) -> list[str]:
    """Notes on defaults made for ImageNet that do not suit these images."""
    given = config.method_options().get("objective") or {}
    options = {**members.options(type(method.objective)), **given}
    rows = len(data.train)
    return [
        f"note      {option}={options[option]:,} suits more than {rows:,} {data.unit}: set method.objective.{option}, "
        f"or take experiment={parse(method.name)[0]}"
        for option in ("queue_size", "prototypes")
        if options.get(option, 0) > rows
    ]


def _devices(config: Config) -> Any:
    if config.trainer.devices == "auto" and not torch.cuda.is_available():
        return 1
    return config.trainer.devices


def _strategy(config: Config) -> Any:
    """DDP without broadcast of buffers for several ranks.

    Batch norm is synchronised, and queues and centres are equal on all ranks, so DDP's default, sending rank 0's
    buffers in every forward, would change nothing; a queue has tens of megabytes.
    """
    asked, devices = config.trainer.strategy, _devices(config)
    if devices in ("auto", -1, "-1"):
        devices = torch.cuda.device_count()
    listed = devices.strip(",").split(",") if isinstance(devices, str) and "," in devices else devices
    ranks = config.trainer.num_nodes * (len(listed) if isinstance(listed, (list, tuple)) else int(listed))
    if asked == "auto" and ranks <= 1:
        return "auto"
    return DDPStrategy(find_unused_parameters=asked.endswith("unused_parameters_true"), broadcast_buffers=False)


def _leave_group(launched_outside: bool) -> None:
    """Close the process group, which Lightning leaves open, so that a later run here can start its own ranks."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
    if not launched_outside:
        for name in ("LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"):
            os.environ.pop(name, None)


def _quiet() -> None:
    """Silence Lightning's advice, which is meant for user-written loops."""
    logging.getLogger("pytorch_lightning").setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*Checkpoint directory.*",
        ".*LeafSpec.*",
        ".*Trying to infer.*",
        ".*smaller than the logging interval.*",
    ):
        warnings.filterwarnings("ignore", message)
