"""Write the features of every image of a folder to one file, with their neighbours, near-duplicates and a map.

python recipes/embed.py checkpoint=runs/zoo/NAME data=path/to/images out=features.npz
python recipes/embed.py checkpoint=efficientnet_lite0 data=path/to/images out=features.parquet neighbours=10
python recipes/embed.py checkpoint=efficientnet_lite0 data=path/to/images out=features.npz duplicates=true against=other
python recipes/embed.py checkpoint=efficientnet_lite0 data=path/to/images out=features.npz map=tsne

The same command resumes a stopped run.
"""

from dataclasses import dataclass
from typing import Any

from evaluation.judging.command_line import settings_of
from sslkit.cli.command import run_plain

from evaluation.embedding.run import Options
from evaluation.embedding.table import SHARED
from sslkit.options.settings import setting


@dataclass
class Own:
    checkpoint: str | None = setting(
        None, "zoo entry, timm:NAME, timm:NAME:FILE, random:NAME, random:ENTRY, efficientnet_lite0"
    )
    data: str | None = setting(
        None,
        "folder of images, several (A,B), list of files (.txt, .csv), pattern (**/*.jpg), embedded name, .npz, "
        "shards:PATTERN, hf:PATH, published set; needs no classes",
    )
    out: str | None = setting(None, "file of the features, .npz or .parquet; what is made of them is written beside it")
    split: str | None = setting(None, "of the data; null: all its splits")
    against: str | None = setting(None, "second folder or data set, to find its images' duplicates in data too")


SETTINGS = settings_of(Own, Options, shared=(*SHARED, "seed"))


def main(config: dict[str, Any]) -> None:
    from evaluation.embedding.run import run

    run(**config)


if __name__ == "__main__":
    run_plain(main, SETTINGS, __doc__, {})
