"""Memory of ranking many models for several tasks, from cached features.

    python recipes/benchmarks/ranking_memory.py --models 1000      (two passes: the first fills the cache)

The zoo is untrained narrow ResNets of different seeds at 16 pixels, 100 images a task, the seven quick metrics. Prints
the resident memory after each task and the seconds of both passes, and writes results/ranking_memory.json. Of the
networks, 4 GiB of weights stay open at most.
"""

import argparse
import os
import time

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from results import keep

import evaluation
from evaluation.datasets import open_split
from evaluation.features.zoo_members import load_member, open_all
from evaluation.ranking.candidates import sampled
from evaluation.ranking.memory import resident
from sslkit.runtime.allocator import return_freed_memory

TASKS = ("digits", "mnist5k", "fashion_mnist_few", "clipart", "fashion_mnist")
METRICS = ("logme", "h_score_regularized", "sfda", "gbc", "etran", "transrate", "ped+logme")
IMAGES = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", type=int, default=1000)
    parser.add_argument("--cache", default="runs/cache_memory", help="folder of the features")
    parser.add_argument("--kept", type=int, default=2**26, help="bytes of weights that stay open")
    args = parser.parse_args()
    names = [f"random:narrow_resnet:{seed}" for seed in range(args.models)]
    models = open_all(names, lambda one: load_member(one, image_size=16), most=args.kept)
    found = {"models": args.models, "MB before": megabytes()}
    for number in ("first", "second"):
        start = time.perf_counter()
        for task in TASKS:
            split = sampled(open_split(task, "train"), IMAGES, 0)
            evaluation.rank(models, split, METRICS, bootstrap=0, cache=args.cache, progress=False)
            found[f"MB after {task}, {number} pass"] = megabytes()
            print(f"{number} pass, {task}: {megabytes()} MB", flush=True)
        found[f"seconds, {number} pass"] = round(time.perf_counter() - start, 1)
    keep("ranking_memory", f"{args.models} models", found)


def megabytes() -> int:
    """Resident memory, after freed memory has been returned to the system."""
    return_freed_memory()
    return round(resident() / 1e6)


if __name__ == "__main__":
    main()
