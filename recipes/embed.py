"""Write the features of every image of a folder to one file, with their neighbours, near-duplicates and a map.

python recipes/embed.py checkpoint=runs/zoo/NAME data=path/to/images out=features.npz
python recipes/embed.py checkpoint=efficientnet_lite0 data=path/to/images out=features.parquet neighbours=10
python recipes/embed.py checkpoint=efficientnet_lite0 data=path/to/images out=features.npz duplicates=true against=other
python recipes/embed.py checkpoint=efficientnet_lite0 data=path/to/images out=features.npz map=tsne

The same command resumes a stopped run.
"""

from typing import Any

from evaluation.judging.command_line import settings_of
from sslkit.cli.command import run_plain

from evaluation.embedding.run import Files, Options
from evaluation.embedding.table import SHARED

SETTINGS = settings_of(Files, Options, shared=(*SHARED, "seed"))


def main(config: dict[str, Any]) -> None:
    from evaluation.embedding.run import run

    run(**config)


if __name__ == "__main__":
    run_plain(main, SETTINGS, __doc__, {})
