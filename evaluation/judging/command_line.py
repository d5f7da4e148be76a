"""Shared by the evaluating command lines: what they judge, and a command line made of one protocol."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from sslkit.cli.command import run_plain

from evaluation import protocols
from evaluation.datasets import Reading
from evaluation.results import OUT
from sslkit.models.loading import Loading
from sslkit.options.calls import merge
from sslkit.options.settings import setting
from sslkit.runtime.context import Runtime


@dataclass
class Subjects:
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
class Output:
    out: str = setting(OUT, "folder of the results of what is no zoo entry")


def settings_of(*groups: type, shared: Collection[str] = ()) -> Any:
    """The settings of a command line: its own, and those of models, images and the run that all have.

    shared: of the latter those that it obeys; none named: all.
    """
    return merge(groups, (Loading, Reading, Runtime), shared)


def run_protocol(name: str, usage: str) -> None:
    """A command line whose settings are those of all and the protocol's own options."""
    options = protocols.find(name).Options
    run_alone(lambda config: name, settings_of(Subjects, options, Output), usage)


def run_alone(chosen: Callable[[dict[str, Any]], str], settings: Any, usage: str) -> None:
    """A command line of one protocol.

    chosen: gives the protocol's name, and takes out of the configuration what is for that alone.
    """

    def task(config: dict[str, Any]) -> None:
        from evaluation.judging.summary import evaluate_by_protocol

        evaluate_by_protocol(chosen(config), **config)

    run_plain(task, settings, usage, {})
