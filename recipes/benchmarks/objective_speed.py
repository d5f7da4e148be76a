"""Time of one training step of the objectives of 2021 to 2025 against the same step built from lightly's parts.

    python recipes/benchmarks/objective_speed.py            (writes results/objective_speed.json)
    python recipes/benchmarks/objective_speed.py --only ibot --repeats 3
    python recipes/benchmarks/objective_speed.py --table    (print the committed results)

Embedded Fashion-MNIST, the settings of objectives.py, fp32, one thread. Both have the same network and the same tensors
of views; both draw masks in the step. The two alternate; times are CPU time of the process, so that other load on
the machine counts little. Freed memory is kept, as
recipes/train.py does.
"""

import argparse
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from objective_peers import PEERS
from objectives import BATCH, as_in_training, settings
from results import keep, load
from step_speed import from_views, ratio, step, summary

import sslkit
from sslkit.training.data import normalization

RESULTS = "objective_speed"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=sorted(PEERS), choices=sorted(PEERS))
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--table", action="store_true", help="print the results and exit")
    args = parser.parse_args()
    if not args.table:
        as_in_training(1)
        for name in args.only:
            keep(RESULTS, name, compare(name, args.repeats))
            print(f"{name:<10} {load(RESULTS)['runs'][name]['ratio']}", flush=True)
    print(table(load(RESULTS)["runs"]))


def compare(name: str, repeats: int) -> dict[str, dict]:
    """Milliseconds of both, and lightly's over ours, by turn."""
    contestants = steps(name)
    times: dict[str, list[float]] = {key: [] for key in contestants}
    for repeat in range(repeats + 1):
        for key, once in sorted(contestants.items(), reverse=repeat % 2 == 0):
            torch.manual_seed(repeat)  # masks of one size
            start = time.process_time()
            once()
            if repeat:
                times[key].append(time.process_time() - start)
    found = {key: summary([1e3 * value for value in values]) for key, values in times.items()}
    return {**found, "ratio": ratio(times, "lightly", "sslkit"), "images": BATCH.get(name, 128)}


def steps(name: str) -> dict[str, Callable[[], None]]:
    """Each contestant as a function that runs one complete step."""
    images = sslkit.open_images("fashion_mnist")
    batch = images.__getitems__(list(range(BATCH.get(name, 128))))
    pixels, index = batch["images"], batch["index"]
    ours = sslkit.method(name, image_size=28, in_chans=1, normalize=normalization(images), **settings(name))
    ours.prepare(images)
    ours.epoch = 2  # after the epochs with frozen layers
    peer = PEERS[name](ours.objective)
    made = ours.make_views(pixels)
    fixed = [ours.normalized(view) for view in made]
    return {
        "lightly": step(peer, lambda: peer(fixed), peer.after_step),
        "sslkit": step(ours, lambda: from_views(ours, made, pixels, index), lambda: ours.after_step(0.5)),
    }


def table(runs: dict[str, dict]) -> str:
    """Markdown: medians, and the ratio with its range."""
    lines = ["| objective | images | ours, CPU ms | lightly's parts | lightly's / ours |", "|---|--:|--:|--:|--:|"]
    for name, one in sorted(runs.items()):
        spread = f"{one['ratio']['median']:.2f} ({one['ratio']['min']:.2f} to {one['ratio']['max']:.2f})"
        times = f"{one['sslkit']['median']:.0f} | {one['lightly']['median']:.0f}"
        lines.append(f"| {name} | {one['images']} | {times} | {spread} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
