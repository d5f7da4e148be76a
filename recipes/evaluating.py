"""Shared by the evaluating command lines: their settings, and a command line made of one protocol."""

import inspect
from dataclasses import asdict, dataclass
from typing import Any

from command import run_plain

from evaluation import protocols
from sslkit import members
from sslkit.settings import MOST_SEED, plain, setting


def option(own: type, name: str, help: str, **changed: Any) -> Any:
    """The setting of an option of a protocol: its default and its range, but for what is changed of them."""
    declared = inspect.signature(own).parameters[name]
    return setting(**{"default": declared.default, "help": help, **vars(plain(declared.annotation)[1]), **changed})


@dataclass
class Settings:
    checkpoint: str | list[str] | None = setting(
        None, "zoo entry, timm:NAME, timm:NAME:FILE, random:NAME, random:ENTRY, efficientnet_lite0, or a list"
    )
    zoo: str | None = setting(None, "folder of zoo entries, instead of checkpoint")
    trust: str | list[str] | None = setting(
        None, "package.module:function, or a list: own code that a card may name and that is run"
    )
    data: str | list[str] | None = setting(
        None, "embedded name, folder, .npz, published set, or a list; null: the embedded suite"
    )
    root: str = setting("data", "folder of the published data sets")
    cache: str = setting("runs/cache", "folder of the features")
    out: str = setting("runs/evaluation", "folder of the results of what is no zoo entry")
    seed: int = setting(0, "of every draw: episodes, held-out images, bootstrap", least=0, most=MOST_SEED)
    image_size: int | None = setting(None, "pixels; null: the model's own", least=1, most=4096)
    precision: str = setting(
        "float32", "of the network: float32 or bfloat16; stored are float32", choices=("float32", "bfloat16")
    )
    batch_size: int | None = setting(
        None, "images a forward pass; null: 256 on a GPU, fewer large ones on the CPU", least=1
    )
    device: str = setting("auto", "auto, cpu, cuda")
    workers: int | str = setting("auto", "processes that decode", least=0, most=256, choices=("auto",))
    counts: str = setting(
        "raise",
        "a published set with another number of images than published: raise, or warn",
        choices=("raise", "warn"),
    )


def run_protocol(name: str, usage: str) -> None:
    """A command line whose settings are those above and the protocol's own options."""
    own = members.options(protocols.find(name).Options)

    def task(config: dict[str, Any]) -> None:
        from evaluation.judging.summary import judge

        shared = {key: config[key] for key in asdict(Settings())}
        judge(**shared, protocols=[name], options={name: {key: config[key] for key in own}})

    run_plain(task, Settings(), usage, {"": own})
