"""How many planted copies `embed.py duplicates=true` finds by five networks, and how many unrelated pictures it pairs.

    python recipes/benchmarks/near_duplicates/run.py           (the embedded clip art, on which the rule was chosen)
    python recipes/benchmarks/near_duplicates/run.py --folders STAMPS MVTB --seeds 10 11 12   (other pictures)
    python recipes/benchmarks/near_duplicates/run.py --table   (print the committed results)

STAMPS: usr/share/tuxpaint/stamps of Debian's tuxpaint-stamps-default; MVTB: mvtbdata/images of PyPI's mvtb-data.
Of 600 pictures 60 have a copy: ten each JPEG at quality 50, at half size, without a twentieth at each side, brighter by
20 %, mirrored, in a black border of 6 %. A copy is found if it is in the group of its picture. A wrong pair is a row of
the list with two different pictures; it is counted in this set, and in 600 pictures without copies. Of a series (one
folder, a fourth of the hash's bits) only the first is in the sets.
"""

import sys
import tempfile
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import cli
import numpy as np
from near_duplicates.sets import COPIES, KINDS, leave_series_out, read_clipart, read_folders, write_sets
from results import load, measure
from seeds import of, spread

import sslkit
from evaluation.datasets import Reading
from evaluation.embedding.near_duplicates import AUTO, Duplicates, Source, duplicates
from evaluation.embedding.sources import open_parts
from evaluation.embedding.table import embed_parts
from sslkit.runtime.context import Runtime
from sslkit.terminal.tables import markdown

RESULTS = "near_duplicates/near_duplicates"
OLD = 0.85  # the default until 2026-11-30, chosen for efficientnet_lite0 at 224 pixels
PIXELS = "pixels alone"
NETWORKS = {  # word and pixels
    "efficientnet_lite0": ("efficientnet_lite0", 224),
    "efficientnet_lite2": ("efficientnet_lite2", 128),
    "untrained resnet18": ("random:resnet18", 64),
    "own BYOL": ("byol", 48),
    "own SimCLR of clothes": ("simclr", 28),
}
OWN = {  # trained here: half a minute each
    "byol": {"method": "byol+dsa", "data": "clipart", "epochs": 3, "image_size": 48},
    "simclr": {"method": "simclr", "data": "fashion_mnist", "epochs": 1},
}


def main() -> None:
    parser = cli.parser(__doc__, "seeds", "table")
    parser.add_argument("--folders", nargs="*", type=Path, help="of pictures; default: the embedded clip art")
    parser.add_argument("--zoo", type=Path, default=Path("runs/near_duplicates"), help="of own networks and features")
    args = parser.parse_args()
    if not args.table:
        name = "other pictures" if args.folders else "clip art"
        images = leave_series_out(read_folders(args.folders) if args.folders else read_clipart())
        measure(RESULTS, {f"{name} | {seed}": partial(one, images, seed, args.zoo) for seed in args.seeds})
    print(table(load(RESULTS)["runs"]))


def one(images: list, seed: int, zoo: Path) -> dict[str, Any]:
    """The numbers of one draw of the sets, by network and threshold."""
    numbers: dict[str, Any] = {"pictures": len(images)}
    with tempfile.TemporaryDirectory() as scratch:
        write_sets(images, seed, Path(scratch))
        runtime = Runtime(cache=zoo / "cache", workers=0, progress=False)
        for network, (word, size) in NETWORKS.items():
            model = sslkit.load(str(train_own(word, zoo)) if word in OWN else word, image_size=size)
            for name in ("planted", "unrelated"):
                parts = open_parts(Path(scratch) / name, None)
                embedding = embed_parts(model, parts, Reading(cache=runtime.cache), runtime)
                source = Source(name, parts, embedding)
                without = replace(source, embedding=replace(embedding, x=np.ones((len(embedding), 1), np.float32)))
                for key, compared, threshold in (
                    (PIXELS, without, AUTO),
                    (network, source, AUTO),
                    (f"{network}, {OLD}", source, OLD),
                ):
                    if f"{key}, {name}" not in numbers:
                        numbers[f"{key}, {name}"] = count(duplicates([compared], threshold), compared)
    return numbers


def train_own(word: str, zoo: Path) -> Path:
    if not (zoo / word).exists():
        sslkit.pretrain(**OWN[word], out=zoo, name=word)
    return zoo / word


def count(pairs: Duplicates, source: Source) -> dict[str, Any]:
    """Copies in the group of their picture, by kind; pairs of different pictures; how near-copies were told."""
    names = [Path(path).stem for path in source.embedding.paths]
    number = np.array([name.partition("-")[0] for name in names])
    first = np.arange(len(names))
    first[pairs.rows[:, 1]] = pairs.rows[:, 0]
    first = first[first]  # of a copy of a copy
    at = {name: row for row, name in enumerate(names)}
    copies_found = {
        kind: sum(first[at[name]] == first[at[name.partition("-")[0]]] for name in names if name.endswith(f"-{kind}"))
        for kind in KINDS
    }
    wrong = number[pairs.rows[:, 0]] != number[pairs.rows[:, 1]]
    listed = [" ".join(names[row] for row in pair) for pair in pairs.rows[wrong][:12]]
    return {
        "found": int(sum(copies_found.values())),
        "by kind": ", ".join(f"{kind} {copies}" for kind, copies in copies_found.items()),
        "wrong": int(wrong.sum()),
        "first wrong": ", ".join(listed),
        "rule": pairs.rule,
    }


def table(runs: dict[str, Any]) -> str:
    """Markdown: mean and deviation over draws of copies found of 60 and of wrong pairs, by set and network."""
    lines = [["pictures", "told by", f"found of {COPIES}", "wrong", "unrelated", f"{OLD}: found", "wrong", "unrelated"]]
    for name in sorted({key.partition(" | ")[0] for key in runs}):
        rows = of(runs, name).values()
        for network in (PIXELS, *NETWORKS):
            cells = []
            for told in (network, f"{network}, {OLD}"):
                for which, kind in (("planted", "found"), ("planted", "wrong"), ("unrelated", "wrong")):
                    cells.append(spread([row[f"{told}, {which}"][kind] for row in rows if f"{told}, {which}" in row]))
            lines.append([name, network, *cells])
    return markdown(lines, range(2, 8))


if __name__ == "__main__":
    main()
