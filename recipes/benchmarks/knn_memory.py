"""Peak memory and time of exact kNN, ours against faiss's IndexFlatIP: 10,000 queries, a bank of 50,000, 512-d.

    python recipes/benchmarks/knn_memory.py            (some two minutes; writes results/knn_memory.json)

Each contestant runs in separate processes, alternating, on one thread. Memory is the peak resident memory minus that
after generating the features (bank 102 MB, queries 20 MB). All similarities at once would be 2,000 MB.
`ours, from disk`: the bank is memory-mapped; pages of its file in memory are counted as well.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
from results import keep

BANK, QUERIES, WIDTH, CLASSES, K = 50_000, 10_000, 512, 100, 20
CONTESTANTS = ("ours", "ours, from disk", "faiss IndexFlatIP")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--run", choices=CONTESTANTS, help="one contestant, in this process")
    args = parser.parse_args()
    if args.run:
        print(json.dumps(measure(args.run)))
        return
    turns = {name: [] for name in CONTESTANTS}
    for _ in range(args.repeats):
        for name, found in turns.items():
            command = [sys.executable, __file__, "--run", name]
            out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
            found.append(json.loads(out.splitlines()[-1]))
    for name, found in turns.items():
        numbers = {key: round(float(np.median([one[key] for one in found])), 3) for key in found[0]}
        keep("knn_memory", name, numbers)
        print(f"{name:<20} {numbers}")


def measure(name: str) -> dict[str, float]:
    """Additional memory in MB, seconds, and the accuracy, which is equal for all."""
    import faiss
    import torch

    import evaluation.protocols.knn  # noqa: F401  imports are not measured

    torch.set_num_threads(1)
    faiss.omp_set_num_threads(1)
    with tempfile.TemporaryDirectory() as folder:
        x, y = cloud(BANK, 0)
        query, wanted = cloud(QUERIES, 1)
        if "disk" in name:
            np.save(Path(folder) / "x.npy", x)
            del x
            x = np.load(Path(folder) / "x.npy", mmap_mode="r")
        before = resident("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        cpu, wall = time.process_time(), time.perf_counter()
        accuracy = RUN[name](x, y, query, wanted)
        return {
            "MB added": resident("VmHWM") - before,
            "cpu s": time.process_time() - cpu,
            "wall s": time.perf_counter() - wall,
            "accuracy": accuracy,
        }


def cloud(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """(n, D) float32 around the centres of CLASSES classes, and their labels."""
    centres = np.random.default_rng(7).normal(size=(CLASSES, WIDTH)).astype("f")
    rng = np.random.default_rng(seed)
    y = np.arange(n) % CLASSES
    return rng.standard_normal((n, WIDTH), dtype="f") + 0.25 * centres[y], y


def ours(x: np.ndarray, y: np.ndarray, query: np.ndarray, wanted: np.ndarray) -> float:
    from evaluation.features.table import Features
    from evaluation.protocols.knn import knn

    names = [str(label) for label in range(CLASSES)]
    train, test = (
        Features(rows, labels, names, digest, np.arange(len(rows)).astype(str))
        for rows, labels, digest in ((x, y, "train"), (query, wanted, "test"))
    )
    return knn(train, test, k=K, ks=()).value


def flat(x: np.ndarray, y: np.ndarray, query: np.ndarray, wanted: np.ndarray) -> float:
    import faiss

    from evaluation.learners.neighbours import unit_rows, vote

    index = faiss.IndexFlatIP(WIDTH)
    index.add(unit_rows(x, "train"))
    similarity, position = index.search(unit_rows(query, "test"), K)
    return float((vote(similarity, y[position], [K], 0.07, CLASSES)[K] == wanted).mean())


RUN = {"ours": ours, "ours, from disk": ours, "faiss IndexFlatIP": flat}


def resident(field: str) -> float:
    """Memory of this process in MB: VmRSS is current, VmHWM the peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1000


if __name__ == "__main__":
    main()
