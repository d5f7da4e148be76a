"""Every setting of a pretraining run and its default, in one place; `--help` prints this file's content."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sslkit.errors import UserError
from sslkit.members import nearest


def setting(default: Any, help: str) -> Any:
    return field(default=default, metadata={"help": help})


@dataclass
class DataConfig:
    source: str = setting(
        "fashion_mnist", "embedded name, folder, .npz file, digits, torchvision:NAME:ROOT or video:FOLDER"
    )
    batch_size: int = setting(128, "images (or videos) a step, over all devices")
    image_size: int | None = setting(
        None, "pixels of the views; null: the images' own, 224 for a folder, 112 for a folder of videos"
    )
    channels: int | None = setting(None, "1, 3, ...; null: as the first image has")
    workers: Any = setting("auto", "loader processes; auto: 0 for arrays, else by the cores")
    on_error: str = setting("skip", "unreadable image: skip (counted, reported at the end) or raise")
    frames: int | None = setting(None, "of videos only: frames of a clip; null: 16")
    stride: int | None = setting(None, "of videos only: frames from one frame of a clip to the next; null: 2")
    clips: int | None = setting(None, "of videos only: clips of each video in a step; null: 2")
    decoder: str | None = setting(None, "of videos only: pyav or torchcodec; null: the first that is installed")

    @property
    def is_video(self) -> bool:
        return str(self.source).startswith("video:")

    @property
    def folder(self) -> str:
        """The source without what says that it holds videos."""
        return str(self.source).removeprefix("video:")


@dataclass
class OptimizerConfig:
    name: str = setting("adamw", "adamw, sgd or lars")
    lr: float = setting(2e-3, "peak learning rate, as is: nothing scales it by the batch size")
    weight_decay: float = setting(1e-4, "not applied to biases and norms")
    momentum: float = setting(0.9, "of sgd and lars")
    warmup: float = setting(0.1, "share of the steps that the learning rate rises; then it falls along a cosine to 0")
    clip: float | None = setting(None, "largest gradient norm; null: no clipping")


@dataclass
class TrainerConfig:
    accelerator: str = setting("auto", "auto, cpu, gpu, mps")
    devices: Any = setting("auto", "how many, or a list; auto: all GPUs, or one CPU process")
    num_nodes: int = setting(1, "machines")
    strategy: str = setting("auto", "auto, ddp or ddp_find_unused_parameters_true")
    precision: str = setting("auto", "32-true, bf16-mixed, 16-mixed; auto: bf16 on a GPU that has it")
    accumulate: int = setting(1, "batches per optimiser step")
    log_every: int = setting(20, "steps between two rows of metrics.csv")
    progress: bool = setting(True, "progress bar (only on a terminal)")


@dataclass
class EvalConfig:
    every: int = setting(1, "epochs between two online evaluations")
    k: int = setting(10, "neighbours of the kNN vote")
    max_images: int = setting(10_000, "at most so many images that kNN and probe learn from, and are tested on")
    tsne: int = setting(2_000, "images in the picture of the embedding; 0: no picture")


@dataclass
class Config:
    """method: a name, or {"name": ..., "objective": {...}, "views": {...}, "dsa": {...}} with options."""

    method: Any = setting("byol+dsa", "objective+regulariser+...")
    backbone: Any = setting(
        "auto",
        "timm name, package.module:function, narrow_resnet, narrow_vit; of clips slow_r18, slow_r50, r3d_18 or "
        "narrow_slow; auto: by method and size",
    )
    epochs: int = setting(6, "passes over the data")
    seed: int = setting(0, "fixes weights, order and views")
    out: str = setting("runs/zoo", "folder that the run's own folder is made in")
    name: str | None = setting(None, "of the run's folder; null: from method, data, backbone, epochs and seed")
    resume: bool = setting(False, "continue the newest run of this name from its last checkpoint")
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> "Config":
        """Defaults overlaid with `given`; `data` may be the source alone. Unknown keys: UserError, nearest named."""
        given = dict(given)
        for short, long in (("data", "source"), ("optimizer", "name")):
            if short in given and not isinstance(given[short], Mapping):
                given[short] = {long: str(given[short])}
        config = _overlay(cls(), given, "")
        _check(config)
        return config

    def to_dict(self) -> dict[str, Any]:
        """What YAML and JSON can hold; a function stands as its name."""
        return _plain(dataclasses.asdict(self))

    @property
    def method_name(self) -> str:
        return self.method if isinstance(self.method, str) else self.method["name"]

    def method_options(self) -> dict[str, Any]:
        """The keyword arguments of `sslkit.method` that hold options."""
        return {} if isinstance(self.method, str) else {k: v for k, v in self.method.items() if k != "name"}


def _overlay(node: Any, given: Mapping[str, Any], where: str) -> Any:
    fields = {f.name: f for f in dataclasses.fields(node)}
    changes = {}
    for key, value in given.items():
        path = f"{where}{key}"
        if key not in fields:
            raise UserError(f"there is no setting {path!r}: {nearest(key, fields)}")
        current = getattr(node, key)
        changes[key] = (
            _overlay(current, value, f"{path}.") if dataclasses.is_dataclass(current) else _typed(value, current, path)
        )
    return dataclasses.replace(node, **changes)


def _typed(value: Any, default: Any, path: str) -> Any:
    """Whole numbers may stand for floats; any other change of type is a mistake."""
    if isinstance(default, float) and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    strict = (bool, int, float)
    if isinstance(default, strict) and type(value) is not type(default):
        raise UserError(f"{path}={value!r} must be a {type(default).__name__}, like its default {default!r}")
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    if callable(value):
        return f"{value.__module__}:{value.__qualname__}"
    return value if value is None or isinstance(value, (str, bool, int, float)) else str(value)


def _check_videos(data: DataConfig) -> None:
    for name in ("frames", "stride", "clips"):
        value = getattr(data, name)
        if value is not None and (not isinstance(value, int) or value < 1):
            raise UserError(f"data.{name}={value} must be a whole number from 1")
    if data.is_video and data.channels not in (None, 3):
        raise UserError(f"data.channels={data.channels}: videos are read as RGB, 3 channels")
    given = [name for name in ("frames", "stride", "clips", "decoder") if getattr(data, name) is not None]
    if given and not data.is_video:
        raise UserError(f"data.{given[0]} is for videos, and data={data.source!r} are images: write data=video:FOLDER")


def _check(config: Config) -> None:
    positive = {
        "epochs": config.epochs,
        "data.batch_size": config.data.batch_size,
        "trainer.accumulate": config.trainer.accumulate,
        "trainer.log_every": config.trainer.log_every,
        "eval.every": config.eval.every,
        "eval.k": config.eval.k,
        "eval.max_images": config.eval.max_images,
        "optimizer.lr": config.optimizer.lr,
    }
    for path, value in positive.items():
        if not value > 0:
            raise UserError(f"{path}={value} must be above 0")
    if config.seed < 0:
        raise UserError(f"seed={config.seed} must be 0 or more")
    if not isinstance(config.method, str) and "name" not in config.method:
        raise UserError('method needs a name: {"name": "byol+dsa", ...}')
    if config.eval.tsne != 0 and config.eval.tsne < 5:
        raise UserError(f"eval.tsne={config.eval.tsne} images make no picture: 0 for none, else at least 5")
    choices = {
        "trainer.strategy": (config.trainer.strategy, ("auto", "ddp", "ddp_find_unused_parameters_true")),
        "optimizer.name": (config.optimizer.name, ("adamw", "sgd", "lars")),
        "data.on_error": (config.data.on_error, ("skip", "raise")),
    }
    for path, (value, known) in choices.items():
        if value not in known:
            raise UserError(f"{path}={value!r} is not known: {nearest(str(value), known)}")
    if not 0 <= config.optimizer.warmup < 1:
        raise UserError(f"optimizer.warmup={config.optimizer.warmup} is a share of the steps: 0 up to 1")
    _check_videos(config.data)
    if config.data.batch_size < 2:
        raise UserError("data.batch_size must be at least 2: losses compare images and batch norm needs a batch")
