"""Write the features of every image of a folder to one file, with their neighbours, near-duplicates and a map.

python recipes/embed.py checkpoint=runs/zoo/NAME data=path/to/images out=features.npz
python recipes/embed.py checkpoint=efficientnet_lite0 data=path/to/images out=features.parquet neighbours=10
python recipes/embed.py checkpoint=efficientnet_lite0 data=path/to/images out=features.npz duplicates=true against=other
python recipes/embed.py checkpoint=efficientnet_lite0 data=path/to/images out=features.npz map=tsne

The same command resumes a stopped run.
"""

from dataclasses import asdict, dataclass, make_dataclass
from typing import Any

from evaluation.judging.command_line import DECLARED
from sslkit.cli.command import run_plain

from evaluation.embedding.drawing import MAPS
from evaluation.embedding.near_duplicates import THRESHOLD
from evaluation.embedding.neighbours import SEARCHES
from sslkit.data.image_options import VALUES
from sslkit.options.settings import MOST_SEED, setting

SHARED = ("trust", "root", "cache", "image_size", "precision", "batch_size", "device", "workers", "counts", *VALUES)


@dataclass
class Made:
    neighbours: int | None = setting(None, "nearest images of each image; null: no lists", least=1)
    search: str = setting(
        "exact", "of neighbours and duplicates; hnsw, ivf: approximate, for 100,000 images and more", choices=SEARCHES
    )
    duplicates: bool = setting(False, "list near-duplicates and copies, with a contact sheet")
    threshold: float = setting(THRESHOLD, "smallest similarity (cosine) of near-duplicates", above=0, most=1)
    map: str | None = setting(None, f"of all images: {', '.join(MAPS)}; null: none", choices=tuple(MAPS))


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
    seed: int = setting(0, "of the map", least=0, most=MOST_SEED)
    against: str | None = setting(None, "second folder or data set, to find its images' duplicates in data too")


Settings = make_dataclass(  # the settings above, and those that are the same as in evaluate.py
    "Settings",
    [(name, field.type, field) for name, field in DECLARED.items() if name in SHARED],
    bases=(Made, Own),
)


def main(config: dict[str, Any]) -> None:
    from evaluation.embedding.run import Wanted, run

    run(wanted=Wanted(**{name: config.pop(name) for name in asdict(Made())}), **config)


if __name__ == "__main__":
    run_plain(main, Settings(), __doc__, {})
