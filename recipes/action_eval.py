"""Action recognition with a video backbone: a linear head on Kinetics-400, or fine-tuning on UCF101 and HMDB51.

python recipes/action_eval.py checkpoint=runs/zoo/NAME data=video:FOLDER protocol=linear
python recipes/action_eval.py checkpoint=runs/zoo/NAME data=video:FOLDER protocol=linear features=once   (small sets)
python recipes/action_eval.py checkpoint=runs/zoo/NAME data=video:FOLDER protocol=fine_tune epochs=10
python recipes/action_eval.py checkpoint=runs/zoo/NAME recipe=paper_k400 root=data
python recipes/action_eval.py checkpoint=runs/zoo/NAME recipe=paper_ucf101 root=data    (its three splits, their mean)

Recipes: paper_k400, paper_ucf101, paper_hmdb51, slowfast_ucf101, slowfast_hmdb51; see
evaluation/protocols/action/recipes.py.
FOLDER holds train/CLASS/FILM and test/CLASS/FILM. The same command goes on where it was stopped;
a split with features=once begins anew.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: spinning threads stall a shared machine

from dataclasses import dataclass
from typing import Any

from command import run_plain
from evaluating import option

from evaluation.protocols.action.options import Options, Place
from evaluation.protocols.action.recipes import PROTOCOLS
from evaluation.protocols.action.runs import FEATURES
from sslkit.settings import setting


@dataclass
class Settings:
    checkpoint: str | list[str] | None = setting(
        None, "zoo entry of a network of clips, random:NAME (slow_r50, r3d_18, ...), or a list"
    )
    zoo: str | None = setting(None, "folder of zoo entries, instead of checkpoint")
    trust: str | list[str] | None = setting(
        None, "package.module:function, or a list: own code that a card may name and that is run"
    )
    data: str | None = setting(
        None, "video:FOLDER, kinetics400, ucf101, hmdb51, NAME:ROOT; null: the recipe's or the entry's"
    )
    protocol: str | None = option(
        Options, "protocol", "linear or fine_tune; null: the recipe's, else linear", choices=PROTOCOLS
    )
    recipe: str | None = option(
        Options, "recipe", "a name of those above; null: paper_k400 for linear, else paper_ucf101"
    )
    folds: int | list[int] | None = option(Options, "folds", "official splits, as [1,2,3]; null: the recipe's")
    epochs: int | None = option(Options, "epochs", "null: the recipe's; so are the next four")
    batch_size: int | None = option(Options, "batch_size", "clips a step; a rate that is not given goes with it")
    lr: float | None = option(Options, "lr", "highest learning rate")
    weight_decay: float | None = option(Options, "weight_decay", "added to the gradient, but for batch normalisation")
    dropout: float | None = option(Options, "dropout", "in front of the linear layer")
    frames: int | None = option(Options, "frames", "of a clip; null: the network's")
    stride: int | None = option(Options, "stride", "frames from one to the next; null: as pretrained, else 64 / frames")
    clips: int = option(Options, "clips", "of a test film")
    crops: int = option(Options, "crops", "of a test clip: 1 or 3")
    rule: str = option(Options, "rule", "where the test clips start: slowfast, slowfast_offset or endpoints")
    features: str = option(
        Options,
        "features",
        "once: the linear protocol on features that are extracted once, not augmented",
        choices=FEATURES,
    )
    precision: str = option(Options, "precision", "of the network: float32 or bfloat16")
    seed: int = option(Place, "seed", "of order, clips, crops, colours and the head's start")
    image_size: int | None = option(Place, "image_size", "pixels; null: the network's")
    root: str = option(Place, "root", "folder of the published data sets")
    cache: str = option(Place, "cache", "folder of the index of films")
    out: str = option(Place, "out", "folder of the results of what is no zoo entry")
    counts: str = option(Place, "counts", "a published set with another number of films than published: raise, or warn")
    on_error: str = option(Options, "on_error", "a film that cannot be decoded: skip (counted and named), or raise")
    save_seconds: float = option(Options, "save_seconds", "between two checkpoints")
    device: str = option(Place, "device", "auto, cpu, cuda")
    workers: int | str = option(Place, "workers", "processes that decode")
    progress: bool = option(Place, "progress", "bars on a terminal")


def main(config: dict[str, Any]) -> None:
    from evaluation.judging.action import judge

    judge(**config)


if __name__ == "__main__":
    run_plain(main, Settings(), __doc__, {})
