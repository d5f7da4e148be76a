"""DDP with and without a static graph, on two processes: CPU time of a step, and whether the gradients are the same.

    cd recipes/benchmarks
    python ddp_speed.py         (writes results/ddp_speed.json)

Embedded Fashion-MNIST, batches of 2 x 64 images, one thread a process, gloo. The variants take turns, each with a copy
of the same method; a step is forward, backward and the reduction of the gradients.
static: DDP records the order of the gradients in its first steps, and reduces them in this order from then on.
unused: DDP looks for parameters without a gradient in every step.
"""

import argparse
import os
import statistics
import time
import warnings
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from machine import machine
from objectives import settings
from results import keep
from torch.nn.parallel import DistributedDataParallel

import sslkit
from sslkit.data.images import Images

RANKS, BATCH, PORT = 2, 64, "29533"
VARIANTS: dict[str, dict[str, bool]] = {
    "ddp": {},
    "static": {"static_graph": True},
    "unused": {"find_unused_parameters": True},
}
NAMES = ("simclr", "byol+dsa", "swav", "dino", "mae+guide")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", default=NAMES, help="methods")
    parser.add_argument("--rounds", type=int, default=15, help="steps of each variant after five to warm up")
    args = parser.parse_args()
    print(f"{machine()['processor']}: median ms of a step (least to most)")
    for name in args.only:
        found = mp.get_context("spawn").Manager().dict()
        mp.spawn(measure, (name, args.rounds, found), RANKS)
        keep("ddp_speed", name, dict(found))
        for variant in VARIANTS:
            print(f"  {name:<12} {variant:<8} {found[variant]}")


def measure(rank: int, name: str, rounds: int, found: Any) -> None:
    """One process: the variants in turns; rank 0 writes into `found`."""
    torch.set_num_threads(1)
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": PORT, "GLOO_SOCKET_IFNAME": "lo"}
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    images = sslkit.open_images("fashion_mnist")
    methods = {variant: built(name, images, **options) for variant, options in VARIANTS.items()}
    batches = [
        images.__getitems__([RANKS * BATCH * step + RANKS * i + rank for i in range(BATCH)]) for step in range(5)
    ]
    times: dict[str, list[float]] = {variant: [] for variant in methods}
    grads: dict[str, list[torch.Tensor]] = {}
    failed: dict[str, str] = {}
    for step in range(5 + rounds):
        for variant, method in methods.items():
            if variant in failed:
                continue
            try:
                dist.barrier()
                began = time.process_time()
                grads[variant] = one_step(method, batches[step % 5])
                times[variant].append(1000 * (time.process_time() - began))
            except RuntimeError as error:
                failed[variant] = str(error).splitlines()[0][:160]
    if rank == 0:
        for variant in methods:
            found[variant] = failed.get(variant) or told(times[variant][5:], grads["ddp"], grads[variant])
    dist.destroy_process_group()


def built(name: str, images: Images, **options: bool) -> DistributedDataParallel:
    torch.manual_seed(0)
    warnings.filterwarnings("ignore", message="`broadcast_buffers` is deprecated")
    own = settings(name.partition("+")[0])
    method = sslkit.method(name, image_size=28, in_chans=1, normalize=((0.5,), (0.25,)), **own)
    method.prepare(images)
    return DistributedDataParallel(method, broadcast_buffers=False, **options)


def one_step(method: DistributedDataParallel, batch: dict[str, Any]) -> list[torch.Tensor]:
    method.zero_grad()
    method(batch["images"], batch["index"])["loss"].backward()
    return [p.grad.clone() for p in method.parameters() if p.grad is not None]


def told(ms: list[float], ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> str:
    same = len(ours) == len(theirs) and all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    spread = f"{statistics.median(ms):.1f} ({min(ms):.1f} to {max(ms):.1f})"
    return f"{spread}, gradients {'equal' if same else 'differ'}"


if __name__ == "__main__":
    main()
