"""Shared by the evaluating command lines: their settings, and a command line made of one protocol."""

import dataclasses
import functools
import inspect
import operator
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_origin

from sslkit.cli.command import run_plain

from evaluation import protocols
from sslkit.data.decode.fill import AUTO, WORDS
from sslkit.options import members
from sslkit.options.settings import MOST_SEED, alternatives, plain, setting


@dataclass
class Asked:
    """Models and data: what a person gives first."""

    checkpoint: str | list[str] | None = setting(
        None,
        "zoo entry, efficientnet_lite0, timm:NAME, timm:NAME:FILE, or a list; with random weights random:NAME, "
        "random:ENTRY; of a ViT also NAME@class, NAME@mean, NAME@class+mean",
    )
    zoo: str | list[str] | None = setting(
        None, "folder of zoo entries, instead of checkpoint, or a list: such folders, timm:NAME, efficientnet_lite0"
    )
    data: str | list[str] | None = setting(
        None,
        "embedded name, folder, several (A,B), list of files (.txt, .csv), pattern (**/*.jpg), .npz, shards:PATTERN, "
        "hf:PATH, published set, or a list; null: the embedded suite",
    )


@dataclass
class Place:
    """All else that the evaluating command lines share."""

    out: str = setting("runs/evaluation", "folder of the results of what is no zoo entry")
    image_size: int | None = setting(None, "pixels; null: the model's own", least=8, most=4096)
    seed: int = setting(0, "of every draw: episodes, held-out images, bootstrap", least=0, most=MOST_SEED)
    device: str = setting("auto", "auto, cpu, cuda")
    precision: str = setting(
        "float32",
        "of feature extraction: float32 or bfloat16; fine-tuning protocols have their own",
        choices=("float32", "bfloat16"),
    )
    batch_size: int | None = setting(
        None, "images a forward pass; null: 256 on a GPU, fewer large ones on the CPU", least=1
    )
    workers: int | str = setting("auto", "processes that decode", least=0, most=256, choices=("auto",))
    cache: str = setting("runs/cache", "folder of the features")
    root: str = setting("data", "folder of the published data sets")
    counts: str = setting(
        "raise",
        "a published set with another number of images than published: raise, or warn",
        choices=("raise", "warn"),
    )
    range: list[float] | str | None = setting(
        None,
        "pixels of more than 8 bits: [low,high], the values that become 0 and 255, as data.range of train.py; auto: "
        "the least and the greatest; null: as in the training of the model",
        choices=("auto",),
    )
    opacity: bool | None = setting(
        None,
        "the plane behind gray or RGB: true, opacity; false, a channel like the others, as data.opacity of train.py; "
        "null: as in the training of the model",
    )
    fill: float | str = setting(
        AUTO,
        "pixels of more than 8 bits: the value that stands for none, or tagged, none, as data.fill of train.py; auto: "
        "as in the training of the model",
        choices=WORDS,
    )
    mirror: bool | None = setting(
        None,
        "whether a mirror image keeps its class, for what is trained on views, as data.mirror of train.py; null: yes, "
        "unless names of classes differ by left and right",
    )
    trust: str | list[str] | None = setting(
        None, "package.module:function, or a list: own code that a card may name and that is run"
    )


@dataclass
class Settings(Place, Asked):
    """Settings of one protocol's command line; the fields of Asked come first."""


DECLARED = {field.name: field for field in dataclasses.fields(Settings)}  # for other command lines
FIRST, LAST = ("checkpoint", "zoo"), ("trust",)
SHARED = ("zoo", "trust", "root", "out", "device", "mirror", "opacity", "fill")  # declared above for all command lines


def settings_of(*parts: type) -> type:
    """The settings of a command line: FIRST, the fields of the dataclasses, whose names differ, LAST.

    Each has its default, its range and, from the docstring (see `members.texts`), its line of help; those of SHARED
    are as in `Settings`.
    """
    fields = {name: (name, field.type, field) for name, field in DECLARED.items()}
    found = {name: fields[name] for name in FIRST}
    for part in parts:
        said = members.texts(part)
        for name, option in inspect.signature(part).parameters.items():
            kind, limits = plain(option.annotation)
            if get_origin(kind) is not Callable:
                own = (name, _typed(kind), setting(option.default, said.get(name, ""), **vars(limits)))
                found[name] = fields[name] if name in SHARED else own
    found = {name: one for name, one in found.items() if name not in LAST} | {name: fields[name] for name in LAST}
    return dataclasses.make_dataclass("Settings", found.values())


def _typed(kind: Any) -> Any:
    """An annotation without Path: what is typed on a command line is text."""
    return functools.reduce(operator.or_, [one for one in alternatives(kind) if one is not Path])


def run_protocol(name: str, usage: str) -> None:
    """A command line whose settings are those above and the protocol's own options."""
    run_alone(lambda config: name, Settings(), usage, protocols.find(name).Options)


def run_alone(chosen: Callable[[dict[str, Any]], str], settings: Any, usage: str, own: type | None = None) -> None:
    """A command line of one protocol.

    chosen: gives the protocol's name, and takes out of the configuration what is for that alone. own: the protocol's
    `Options`, where `settings` lacks them.
    """

    def task(config: dict[str, Any]) -> None:
        from evaluation.judging.summary import judge_alone

        judge_alone(chosen(config), **config)

    run_plain(task, settings, usage, {"": own} if own else {})
