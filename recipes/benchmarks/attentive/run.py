"""What attention over patches finds in MAE's features that a linear layer on their mean does not.

pip install elpv-dataset
python recipes/benchmarks/attentive/run.py --sets fashion_mnist cells   (measure; what is measured is kept)
python recipes/benchmarks/attentive/run.py --table                     (print the committed results)

Each network is pretrained by MAE on the training images of a set, without labels, and judged on its test images by
both attention pools, the linear probe of the mean of its patches, and that of the best blocks. Chosen before the first
run: seeds 0 to 2, epochs by network as below; a difference counts if its paired 95 % interval leaves 0 out.
"""

import sys
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import cli
from results import load, measure
from solving.elpv import write_quarter

import evaluation
import sslkit
from evaluation.results.result import Result
from sslkit.terminal.tables import markdown
from sslkit.zoo.entry import CARD

RESULTS = "attentive/attentive"
SETS = ("fashion_mnist", "clipart", "cells")
NETWORKS = {  # settings of `sslkit.pretrain`, and epochs by set
    "narrow": ({"backbone": "narrow_vit", "image_size": 32}, {"fashion_mnist": 10, "clipart": 40, "cells": 40}),
    "small": (
        {"backbone": "vit_small_patch16_224", "image_size": 96},
        {"fashion_mnist": 4, "clipart": 15, "cells": 15},
    ),
}
PROBES = ("efficient", "attention", "linear_grid")  # beside the linear probe
PUBLISHED = {"ViT-B/16": (67.8, 75.5), "ViT-S/16": (47.1, 64.6)}  # ImageNet, linear and efficient (2506.10178)


def main() -> None:
    parser = cli.parser(__doc__, "table", "seeds")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=SETS)
    parser.add_argument("--networks", nargs="+", choices=NETWORKS, default=list(NETWORKS))
    parser.add_argument("--out", type=Path, default=Path("runs/attentive"), help="of trainings and features")
    args = parser.parse_args()
    if not args.table:
        for network in args.networks:
            cells = {
                f"{network} | {name} | {seed}": partial(judge, network, name, seed, args.out)
                for name in args.sets
                for seed in args.seeds
            }
            measure(RESULTS, cells)
    print(table(load(RESULTS)["runs"]))


def judge(network: str, name: str, seed: int, out: Path) -> dict[str, Any]:
    """The accuracy of each probe, and how far it is above the linear one, with its paired interval."""
    data = str(write_quarter(0, out / "cells")) if name == "cells" else name
    entry = train(network, name, data, seed, out)
    how = {"cache": out / "cache", "device": "cpu", "progress": False}
    parts = [evaluation.extract(entry, data, split, **how) for split in ("train", "test")]
    linear = evaluation.linear_probe(*parts, seed=seed, progress=False)
    others = {
        probe: evaluation.linear_grid(entry, data, seed=seed, **how)
        if probe == "linear_grid"
        else evaluation.attentive(entry, data, pool=probe, seed=seed, **how)
        for probe in PROBES
    }
    return {
        "linear": linear.value,
        "images": linear.n,
        **{probe: above(result, linear) for probe, result in others.items()},
        "best": others["linear_grid"].details["best"],
    }


def above(result: Result, linear: Result) -> dict[str, Any]:
    """The value, its difference to the linear probe with its interval, and what was chosen."""
    pair = evaluation.compare(result, linear)
    chosen = {name: result.details.get(name) for name in ("lr", "weight_decay", "input", "at_edge", "parameters")}
    return {"value": result.value, "above": pair.difference, "interval": pair.interval, "p": pair.p, **chosen}


def train(network: str, name: str, data: str, seed: int, out: Path) -> str:
    """The entry of a network that MAE pretrained on a set, trained if it is not there."""
    settings, epochs = NETWORKS[network]
    folder = out / "zoo" / f"{network}-{name}-{seed}"
    if not (folder / CARD).is_file():
        basic = {"method": "mae", "data": data, "epochs": epochs[name], "seed": seed, "device": "cpu", "batch_size": 32}
        places = {"out": str(folder.parent), "name": folder.name, "cache": str(out / "cache"), "eval.tsne": 0}
        sslkit.pretrain({**settings, **basic, **places, "resume": folder.is_dir()})
    return str(folder)


def table(runs: dict[str, Any]) -> str:
    """Markdown: a line for each network, set and seed, then what the paper has on ImageNet."""
    lines = [["network, set, seed", "images", "linear", *(f"{probe} less linear" for probe in PROBES)]]
    for key, run in runs.items():
        cells = [f"{100 * run[p]['above']:+.1f} ({_ends(run[p]['interval'])})" for p in PROBES]
        lines.append([key.replace(" | ", ", "), f"{run['images']:,}", f"{100 * run['linear']:.1f}", *cells])
    for name, (linear, efficient) in PUBLISHED.items():
        lines.append([f"MAE {name}, ImageNet, published", "50,000", f"{linear}", f"{efficient - linear:+.1f}", "", ""])
    return markdown(lines)


def _ends(interval: list[float]) -> str:
    return " to ".join(f"{100 * end:+.1f}" for end in interval)


if __name__ == "__main__":
    main()
