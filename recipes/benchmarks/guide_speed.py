"""Time that `+guide` adds to a step, and that a measurement of the shares takes.

    python recipes/benchmarks/guide_speed.py           (five minutes; writes results/guide_speed.json)
    python recipes/benchmarks/guide_speed.py --table   (print the committed results)

Steps of Fashion-MNIST at 28 pixels, batches and heads as in objectives.py, each forward, backward and AdamW, views
included, one thread. The contestants alternate: the objective alone, with guide (pca), with guide (hog at 32 pixels),
and with guide in a step in which the shares are measured, of which every 64th is one. CPU milliseconds, so that waiting
for a core of a busy machine does not count; medians of the differences to the same round's plain step.
"""

import argparse
import os
import statistics
import time
from collections.abc import Callable
from functools import partial

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from objectives import BATCH, settings
from results import keep, load

import sslkit
from sslkit.composition.balance import EVERY
from sslkit.runtime.allocator import keep_freed_memory

NAMES = ("simclr", "byol", "mae", "swav")
HOG = {"prior": "hog", "prior_size": 32}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=60)
    parser.add_argument("--table", action="store_true", help="print the results and exit")
    args = parser.parse_args()
    if not args.table:
        torch.set_num_threads(1)
        keep_freed_memory()  # as recipes/train.py does
        for name in NAMES:
            keep("guide_speed", name, measure(name, args.repeats))
    print(table(load("guide_speed")))


def measure(name: str, repeats: int) -> dict[str, float]:
    """Medians over the rounds: ms of the plain step, and what the others add to it in per cent."""
    plain, guided, hog = step_of(name), step_of(f"{name}+guide"), step_of(f"{name}+guide", guide=HOG)
    calls = {
        "plain": partial(plain, 1),
        "guide": partial(guided, 1),
        "hog": partial(hog, 1),
        "measured": partial(guided, EVERY),
    }
    times: dict[str, list[float]] = {key: [] for key in calls}
    for _ in range(3 + repeats):
        for key, call in calls.items():
            start = time.process_time()
            call()
            times[key].append(1e3 * (time.process_time() - start))
    alone = times["plain"][3:]
    added = {key: statistics.median(b - a for a, b in zip(alone, times[key][3:], strict=True)) for key in calls}
    base = statistics.median(alone)
    return {
        "ms": round(base, 1),
        "guide": round(100 * added["guide"] / base, 1),
        "hog": round(100 * added["hog"] / base, 1),
        "measured": round(100 * (added["measured"] - added["guide"]) / base, 1),
        "shares": round(100 * (added["measured"] - added["guide"]) / base / EVERY, 2),
    }


def step_of(name: str, **options: dict) -> Callable[[int], None]:
    """One training step, numbered by the caller: a multiple of EVERY is measured."""
    images = sslkit.open_images("fashion_mnist")
    objective = name.partition("+")[0]
    size = BATCH.get(objective, 128)
    method = sslkit.method(name, image_size=28, in_chans=1, **settings(objective), **options)
    method.prepare(images)
    optimizer = torch.optim.AdamW([p for p in method.parameters() if p.requires_grad], 1e-3)
    batch = images.__getitems__(list(range(size)))

    def step(number: int) -> None:
        method.shares.steps = number
        method.epoch = 2  # after the epochs with frozen layers
        method(batch["images"], batch["index"], labels=batch["label"])["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        method.after_step(0.5)

    return step


def table(results: dict) -> str:
    lines = [
        "| objective | ms a step | guide, pca | guide, hog | a measured step | shares, of all steps |",
        "|---|--:|--:|--:|--:|--:|",
    ]
    for name, row in results["runs"].items():
        added = " | ".join(f"{row[key]:+.1f} %" for key in ("guide", "hog", "measured"))
        lines.append(f"| {name} | {row['ms']} | {added} | {row['shares']:+.2f} % |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
