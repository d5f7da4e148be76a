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

from sslkit.settings import MOST_SEED, setting


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
    protocol: str | None = setting(
        None, "linear or fine_tune; null: the recipe's, else linear", choices=("linear", "fine_tune")
    )
    recipe: str | None = setting(None, "a name of those above; null: paper_k400 for linear, else paper_ucf101")
    folds: int | list[int] | None = setting(
        None, "official splits, as [1,2,3]; null: the recipe's", least=1, most=10**9
    )
    epochs: int | None = setting(None, "null: the recipe's; so are the next four", least=1, most=10**9)
    batch_size: int | None = setting(None, "clips a step; a rate that is not given goes with it", least=1, most=10**9)
    lr: float | None = setting(None, "highest learning rate", above=0)
    weight_decay: float | None = setting(None, "added to the gradient, but for batch normalisation", least=0)
    dropout: float | None = setting(None, "in front of the linear layer", least=0, below=1)
    frames: int | None = setting(None, "of a clip; null: the network's", least=1, most=4096)
    stride: int | None = setting(
        None, "frames from one to the next; null: as pretrained, else 64 / frames", least=1, most=4096
    )
    clips: int = setting(10, "of a test film", least=1, most=10**9)
    crops: int = setting(3, "of a test clip: 1 or 3", least=1, most=3)
    rule: str = setting("slowfast", "where the test clips start: slowfast, slowfast_offset or endpoints")
    features: str = setting(
        "live",
        "once: the linear protocol on features that are extracted once, not augmented",
        choices=("live", "once"),
    )
    precision: str = setting("float32", "of the network: float32 or bfloat16", choices=("float32", "bfloat16"))
    seed: int = setting(0, "of order, clips, crops, colours and the head's start", least=0, most=MOST_SEED)
    image_size: int | None = setting(None, "pixels; null: the network's", least=1, most=4096)
    root: str = setting("data", "folder of the published data sets")
    cache: str = setting("runs/cache", "folder of the index of films")
    out: str = setting("runs/evaluation", "folder of the results of what is no zoo entry")
    counts: str = setting(
        "raise",
        "a published set with another number of films than published: raise, or warn",
        choices=("raise", "warn"),
    )
    on_error: str = setting(
        "skip", "a film that cannot be decoded: skip (counted and named), or raise", choices=("skip", "raise")
    )
    save_seconds: float = setting(300.0, "between two checkpoints", least=0)
    device: str = setting("auto", "auto, cpu, cuda")
    workers: int | str = setting("auto", "processes that decode", least=0, most=256, choices=("auto",))
    progress: bool = setting(True, "bars on a terminal")


def main(config: dict[str, Any]) -> None:
    from evaluation.judging.action import judge

    judge(**config)


if __name__ == "__main__":
    run_plain(main, Settings(), __doc__, {})
