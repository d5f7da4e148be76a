"""Every setting of a pretraining run and its default; `--help` prints them."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from torch.utils.data import Dataset

from sslkit.backbones import tune
from sslkit.backbones.words import AUTO
from sslkit.data.image_options import MOST_PIXELS, DataOptions
from sslkit.data.source_options import DataConfig
from sslkit.data.sources.objects import as_source, name_of
from sslkit.errors import UserError, format_value
from sslkit.numerics.neighbours import K
from sslkit.options.meant import VALUES_ELSEWHERE
from sslkit.options.settings import as_plain, nest, overlaid, setting, storable
from sslkit.runtime.context import Computing

DEVICES = ("auto", "cpu", "cuda", "mps")
LEAST_POINTS = 5  # images of a t-SNE
SHORT = {"data": "source", "optimizer": "name", "method": "name"}  # {"data": X} is {"data": {"source": X}}


@dataclass(frozen=True)
class OptimizerConfig:
    name: str = setting("adamw", "adamw, sgd or lars", choices=("adamw", "sgd", "lars"))
    lr: float | None = setting(
        None,
        "peak learning rate; null: 0.009 for a new narrow_resnet with adamw and no lr_scaling (below a batch_size of "
        "128 in proportion to its root), 3e-05 for the network of init= with adamw, otherwise 0.002",
        above=0,
        most=10**6,
    )
    head_lr: float | None = setting(
        None,
        "of the new parts beside the network: projector, predictor, prototypes, decoder; null: as lr, with init= and "
        "adamw at least 0.002",
        above=0,
        most=10**6,
    )
    lr_scaling: str = setting(
        "none", "linear, sqrt: lr is for 256 images a step; none: as it is", choices=("none", "linear", "sqrt")
    )
    layer_decay: float | None = setting(
        None,
        "factor of lr from each layer to the one before, 1: none; null: 0.75 with init=, if the network names its "
        "layers, otherwise none",
        above=0,
        most=1,
    )
    weight_decay: float = setting(1e-4, "not applied to biases and norms", least=0, most=10**6)
    weight_decay_end: float | None = setting(
        None, "reached along a cosine (DINO: 0.4); null: constant", least=0, most=10**6
    )
    momentum: float = setting(0.9, "of sgd and lars", least=0, below=1)
    warmup: float = setting(
        0.1,
        "share of the steps in which the learning rate rises; from 1 on, the number of these steps",
        least=0,
        most=10**9,
    )
    schedule: str = setting(
        "cosine",
        "of the learning rate after warmup; cosine: falls to 0; step: times `drop` at each of `drops`",
        choices=("cosine", "step"),
    )
    drops: list[int] = setting(
        (50, 25), "epochs before the end, of schedule=step (DSA, Song et al. 2024, VI-B)", least=0, most=10**6
    )
    drop: float = setting(0.2, "factor of the learning rate at each of `drops`", above=0, most=1)
    clip: float | None = setting(None, "largest gradient norm; null: no clipping", above=0, most=10**9)


@dataclass(frozen=True)
class TrainerConfig:
    devices: int | str | list[int] = setting(
        "auto", "how many, or a list; auto: torchrun's, GPUs that share a batch, or the CPU", least=-1, most=4096
    )
    num_nodes: int = setting(1, "machines; torchrun's are found", least=1, most=4096)
    strategy: str = setting(
        "auto",
        "auto, ddp, ddp_find_unused_parameters_true, or fsdp: ViTs in shares, one on each GPU",
        choices=("auto", "ddp", "ddp_find_unused_parameters_true", "fsdp"),
    )
    accumulate: int = setting(1, "batches per optimiser step", least=1, most=10**6)
    compile: bool | str = setting(False, "torch.compile; reduce-overhead: CUDA graphs", choices=("reduce-overhead",))
    deterministic: bool = setting(False, "the same bits in every run on a GPU too, as on a CPU; slower")
    checkpoint_activations: bool = setting(False, "compute activations twice: less memory, more time")
    logger: str | list[str] = setting(
        "tensorboard",
        "or csv, wandb, mlflow, comet, litlogger, or a list",
        choices=("tensorboard", "csv", "wandb", "mlflow", "comet", "litlogger"),
    )
    log_every: int | str = setting(
        "auto",
        "batches between two rows of metrics.csv; auto: 20, fewer in a short run",
        least=1,
        most=10**9,
        choices=("auto",),
    )


@dataclass(frozen=True)
class EvalConfig:
    every: int = setting(1, "epochs between two online evaluations", least=1, most=10**9)
    k: int = setting(K, "neighbours of the kNN vote", least=1)
    max_images: int = setting(
        10_000, "maximum number of images to train kNN and probe on, and to test them on", least=2, most=10**9
    )
    tsne: int = setting(2_000, "images in the picture of the embedding; 0: no picture", least=0, most=10**6)
    protocols: str | list[str] | None = setting(
        None,
        "protocols that measure the start, each online evaluation and the end, such as [knn,retrieval]; the first on a "
        "data set pays for its features; null: none",
    )
    data: str | list[str] | None = setting(
        None, "of eval.protocols: a data set with labels, or a list; null: that of the run"
    )
    protocol_options: dict | None = setting(None, "of eval.protocols: {knn:{k:5}}")
    by: str | None = setting(
        None,
        "of eval.protocols what keep=best and stop= compare epochs by: knn, or with eval.data= knn/clipart; null: see "
        "keep",
    )


@dataclass(frozen=True)
class Config(Computing, DataOptions):
    """method: a name, or {"name": ..., "objective": {...}, "views": {...}, "dsa": {...}} with options."""

    method: str | dict = setting("byol+dsa", "objective+regulariser+...")
    backbone: str = setting(
        AUTO,
        "timm name, package.module:function, narrow_resnet, narrow_vit; for clips slow_r18, slow_r50, r3d_18 or "
        "narrow_slow; auto: by method and size, on a CPU narrow ones up to 64 pixels, then resnet18 or a tiny ViT",
    )
    init: str | None = setting(
        None,
        "weights to start from: timm:NAME (downloads them), timm:NAME:FILE, a zoo entry's folder, efficientnet_lite0 "
        "or published:NAME:FILE; null: random ones",
    )
    unfreeze: float | None = setting(
        None,
        "share of the steps, or from 1 on epochs, in which the new parts beside the network learn alone; null: "
        "0.1 with init=",
        least=0,
        most=10**9,
    )
    tune: str | None = setting(
        None,
        "what of init= is trained: all, norms, last:K (the last K blocks), lora or lora(rank,alpha,blocks); means and "
        "variances of batch norm stay, but for WORD+statistics; null: all with init=",
    )
    interpolate: float | str = setting(
        AUTO,
        "share of the trained weights in those that are kept, the rest is the start's (init=); auto: the best of some "
        "shares on half of the held-out images, 1 where fewer than 100 have labels",
        above=0,
        most=1,
        choices=(AUTO,),
    )
    keep: str = setting(
        "last",
        "the epoch whose weights are kept: last, or best on half of the held-out images, without labels by finding the "
        "other view",
        choices=("last", "best"),
    )
    stop: int | None = setting(
        None, "end after so many evaluations without gain, measured as of keep=best; null: never", least=1, most=10**6
    )
    epochs: int = setting(6, "passes over the data", least=1, most=10**9)
    batch_size: int = setting(128, "images (or videos) a step, over all devices", least=2, most=2**20)
    image_size: int | None = setting(
        None,
        "pixels of the views; null: the images' own; of files 224, on a CPU 96; of videos 112",
        least=8,  # as scikit-learn's digits: the crops of smaller images are a pixel or two
        most=MOST_PIXELS,
    )
    precision: str = setting(
        "auto",
        "float32, or bfloat16, float16 autocast; auto: bfloat16 on a GPU that has it",
        choices=("auto", "float32", "bfloat16", "float16"),
    )
    out: str = setting("runs/zoo", "folder for the run's own folder")
    name: str | None = setting(None, "name of the run's folder; null: from method, data, backbone, epochs and seed")
    resume: bool = setting(False, "continue the newest run of this name from its last checkpoint")
    dry: bool = setting(False, "only print the memory by batch and the least time on some cards, and end")
    pilot: str | float | None = setting(None, "with dry=true and init=: train so long, as 5min, and say what it gained")
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    trainer: TrainerConfig = field(default_factory=TrainerConfig)
    eval: EvalConfig = field(default_factory=EvalConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if isinstance(self.range, tuple):  # of a Python program: the list that config.yaml has
            object.__setattr__(self, "range", list(self.range))

    @classmethod
    def from_mapping(cls, given: Mapping[str, Any]) -> "Config":
        """Return the defaults overlaid with `mapping`; `data` may be just the source, and keys may have dots.

        {"data": "digits", "batch_size": 64, "method.dsa.nu": 0.2} is
        {"data": {"source": "digits"}, "batch_size": 64, "method": {"name": "byol+dsa", "dsa": {"nu": 0.2}}}.
        Raises UserError for an unknown key, with the nearest one, and for a setting that is given twice.
        """
        config = overlaid(cls(), _group(given))
        _check(config)
        return config

    def to_dict(self) -> dict[str, Any]:
        """The settings as values that YAML and JSON can hold; a function becomes its name."""
        return storable(dataclasses.asdict(self))

    @property
    def method_name(self) -> str:
        return self.method if isinstance(self.method, str) else self.method["name"]

    def method_options(self) -> dict[str, Any]:
        """The option arguments of `sslkit.method`."""
        return {} if isinstance(self.method, str) else {k: v for k, v in self.method.items() if k != "name"}


def _group(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """The settings with each group as a mapping of its own, and no dots in a key; a method alone stays a text."""
    if any(str(key).startswith("method.") for key in mapping):
        mapping = {"method": Config.method, **mapping}
    groups = {
        key: as_plain(dict(value) if isinstance(value, Mapping) else value)
        for key, value in nest(mapping, SHORT).items()
    }
    apart = [key for key in ("data", "optimizer") if key in groups and not isinstance(groups[key], Mapping)]
    return groups | {key: {SHORT[key]: groups[key]} for key in apart}


def _check(config: Config) -> None:
    """Check the settings that depend on each other; `overlaid` has checked each one alone."""
    name = config.method if isinstance(config.method, str) else config.method.get("name")
    if not isinstance(name, str):
        raise UserError(f'method needs a name: {{"name": "byol+dsa", ...}}, got {format_value(config.method)}')
    if config.device.partition(":")[0] not in DEVICES:
        close = VALUES_ELSEWHERE.get(config.device)
        hint = f"did you mean {close!r}? " if close in DEVICES else ""
        raise UserError(f"device={config.device} is not known: {hint}known: {', '.join(DEVICES)}, cuda:1")
    few = min(config.eval.tsne, config.eval.max_images)
    if 0 < few < LEAST_POINTS:
        name = "tsne" if few == config.eval.tsne else "max_images"
        raise UserError(
            f"eval.{name}={few} is too few for the picture: at least {LEAST_POINTS}, or eval.tsne=0 for none"
        )
    if config.eval.max_images < config.eval.k:
        raise UserError(
            f"eval.max_images={config.eval.max_images} must be at least eval.k={config.eval.k}, the kNN neighbours"
        )
    check_optimizer(config.optimizer, config.epochs)
    if config.tune is not None:
        tune.parse(config.tune)
        if config.init is None:
            raise UserError(f"tune={config.tune} says what of init= is trained: give init=, or leave it out")
    if config.unfreeze and config.init is None:
        raise UserError("unfreeze= trains what is new beside the weights of init= first: give init=, or leave it out")
    if config.unfreeze is not None and config.unfreeze >= config.epochs:
        raise UserError(
            f"unfreeze={config.unfreeze:g} epochs of {config.epochs}: the network would never be trained; give fewer "
            "epochs, or a share of the steps such as unfreeze=0.1"
        )
    if config.interpolate not in (AUTO, 1) and config.init is None:
        share = f"interpolate={config.interpolate:g}"
        raise UserError(f"{share} is between the weights of init= and the trained ones: give init=, or leave it out")
    config.data.check(config)


def check_optimizer(optimizer: OptimizerConfig, epochs: float) -> None:
    """Raises UserError for a rate that falls before it has risen, and for LARS without one."""
    if optimizer.schedule == "step" and max(optimizer.drops, default=0) >= epochs:
        raise UserError(
            f"optimizer.drops={format_value(list(optimizer.drops))} are epochs before the end, and the run has "
            f"{epochs:g}: the learning rate would fall before its first step; give later ones, such as "
            "optimizer.drops=[2,1]"
        )
    if optimizer.name == "lars" and optimizer.lr is None:
        raise UserError(
            "optimizer.name=lars needs optimizer.lr: a step moves a matrix by about lr / 1000 of its length "
            "(published: 0.3 for SimCLR, 0.2 for BYOL, both with optimizer.lr_scaling=linear)"
        )


def parse_settings(
    given: Mapping[str, Any] | Config | str | None, settings: Mapping[str, Any]
) -> tuple[Config, Dataset | None]:
    """The settings of both arguments of `sslkit.pretrain`, and the object that is the data; None if it is a name.

    An object is an array, a Dataset, Images, or a list of files: see `sslkit.data.sources.objects`.
    """
    if isinstance(given, Config):
        if settings:
            raise UserError(f"{', '.join(settings)} beside a Config: set it there, with dataclasses.replace")
        groups = {
            name: dict(vars(value)) if dataclasses.is_dataclass(value) else value for name, value in vars(given).items()
        }
        return Config.from_mapping(groups), None
    config = {"method": given} if isinstance(given, str) else {} if given is None else given
    if not isinstance(config, Mapping):
        raise UserError(
            f"settings are a mapping, such as {{'method': 'simclr', 'epochs': 100}}; got {format_value(given)}"
        )
    if twice := sorted(set(config) & set(settings)):
        raise UserError(
            f"{twice[0]} is given twice: {format_value(config[twice[0]])} and {format_value(settings[twice[0]])}"
        )
    config = _group({**config, **settings})
    source = config.get("data", {}).get("source", "")
    if isinstance(source, (str, Mapping)):
        return Config.from_mapping(config), None
    opened = as_source(source)
    config["data"]["source"] = name_of(opened) if isinstance(opened, Dataset) else opened
    return Config.from_mapping(config), opened if isinstance(opened, Dataset) else None
