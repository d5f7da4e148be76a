"""Time of one training step of the objectives of 2021 to 2025 against the same step built from lightly's parts.

    python recipes/benchmarks/objective_speed.py            (writes results/objective_speed.json)
    python recipes/benchmarks/objective_speed.py --only ibot --repeats 3
    python recipes/benchmarks/objective_speed.py --table    (print the committed results)
    MALLOC_MMAP_THRESHOLD_=2000000000 MALLOC_TRIM_THRESHOLD_=4000000000 python recipes/benchmarks/objective_speed.py

Embedded Fashion-MNIST, the settings of objectives.py, fp32, one thread. Both have the same network and the same tensors
of views; both draw masks in the step. The two alternate; times are CPU time of the process, so that other load on
the machine counts little. With the two variables of the last line glibc keeps freed memory instead of giving it back to
the system after each large tensor; those runs are stored separately.
"""

import argparse
import os
import time
from collections.abc import Callable

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from objective_peers import PEERS
from objectives import BATCH, settings
from results import keep, load
from step_speed import from_views, ratio, step, summary

import sslkit
from sslkit.training.data import normalization

RESULTS = "objective_speed"
PART = "memory kept" if "MALLOC_TRIM_THRESHOLD_" in os.environ else "runs"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=sorted(PEERS), choices=sorted(PEERS))
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--table", action="store_true", help="print the results and exit")
    args = parser.parse_args()
    if not args.table:
        torch.set_num_threads(1)
        for name in args.only:
            keep(RESULTS, name, compare(name, args.repeats), part=PART)
            print(f"{name:<10} {load(RESULTS)[PART][name]['ratio']}", flush=True)
    print(table(load(RESULTS)))


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


def table(results: dict[str, dict]) -> str:
    """Markdown: medians, and the ratio with its range, with glibc's defaults and with memory kept."""
    columns = ["sslkit, ms", "lightly's parts, ms", "lightly / sslkit"]
    lines = [
        " | ".join(["| objective", "images", *columns, *(f"{name}, memory kept" for name in columns)]) + " |",
        "|---" + "|--:" * 7 + "|",
    ]
    for name, one in sorted(results["runs"].items()):
        both = [one, results.get("memory kept", {}).get(name)]
        lines.append(
            " | ".join([f"| {name}", str(one["images"]), *(cell for run in both for cell in cells(run))]) + " |"
        )
    return "\n".join(lines)


def cells(run: dict[str, dict] | None) -> list[str]:
    if run is None:
        return [""] * 3
    spread = f"{run['ratio']['median']:.2f} ({run['ratio']['min']:.2f} to {run['ratio']['max']:.2f})"
    return [f"{run['sslkit']['median']:.0f}", f"{run['lightly']['median']:.0f}", spread]


if __name__ == "__main__":
    main()
