"""Write the features of every image of a folder to one file, with their neighbours, near-duplicates and a map.

python recipes/embed.py checkpoint=runs/zoo/NAME data=path/to/images out=features.npz
python recipes/embed.py checkpoint=efficientnet_lite0 data=path/to/images out=features.parquet neighbours=10
python recipes/embed.py checkpoint=efficientnet_lite0 data=path/to/images out=features.npz duplicates=true against=other
python recipes/embed.py checkpoint=efficientnet_lite0 data=path/to/images out=features.npz map=tsne

The same command resumes a stopped run.
"""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # before torch: spinning threads stall a shared machine

from dataclasses import dataclass, fields, make_dataclass
from typing import Any

import evaluating
from command import run_plain

from sslkit.settings import setting

SHARED = ("trust", "root", "cache", "image_size", "precision", "batch_size", "device", "workers", "counts")


@dataclass
class Own:
    checkpoint: str | None = setting(
        None, "zoo entry, timm:NAME, timm:NAME:FILE, random:NAME, random:ENTRY, efficientnet_lite0"
    )
    data: str | None = setting(
        None, "folder of images with or without class folders, embedded name, .npz, published set"
    )
    out: str | None = setting(None, "file of the features, .npz or .parquet; what is made of them is written beside it")
    split: str | None = setting(None, "of the data; null: all its splits")


def settings() -> Any:
    """The settings above, and those that are the same as in evaluate.py."""
    shared = [(one.name, one.type, one) for one in fields(evaluating.Settings) if one.name in SHARED]
    return make_dataclass("Settings", shared, bases=(Own,))()


def main(config: dict[str, Any]) -> None:
    from evaluation.embedding.run import run

    run(**config)


if __name__ == "__main__":
    run_plain(main, settings(), __doc__, {})
