"""Training steps on a GPU: their correctness, the calls that wait for the device, and their speed.

    cd recipes/benchmarks/gpu
    python run.py correct            (every objective, plain and with each regulariser)
    python run.py resume             (killed and resumed against unbroken, with and without trainer.deterministic)
    python run.py sync               (a step may not wait for the GPU)
    python run.py fast               (images a second of whole steps at 224 px, bf16)
    python run.py small              (the same of narrow networks at 32 px, compiled, and with CUDA graphs)
    python run.py dsa                (time and memory of DSA's terms at 512, 2,048 and 8,192 images)
    python run.py data               (JPEG files by CPU workers or nvJPEG, and how long a run waits for them)
    python run.py long               (the study of guide with several members side by side; hours, resumes)
    python run.py correct resume dsa data --device cpu --only simclr byol+guide   (small, without a GPU)
    python run.py --table            (print the committed results)

correct: terms and gradient of a training step in float32 against the CPU, and in bfloat16 against float32 on the same
device, with the bounds of correct.py; views from the same draws. TF32 is off. sync: PyTorch's check for waiting
calls, on the third step of each method; the second has compiled and allocated. fast: ResNet-50 and ViT-S/16, batch 256,
whole steps from uint8 images on the device, in turns with the bare network's forward and backward and lightly's parts,
and the largest batch that fits.
"""

import os
import subprocess
import sys
import tempfile
import warnings
from datetime import date
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import cli
import torch
from gpu import data as gpu_data
from gpu import dsa as gpu_dsa
from gpu import resume as gpu_resume
from gpu.correct import BOUNDS, Gap, compare, names, prepared
from gpu.fast import contestants, largest_batch, rates, small_contestants
from gpu.table import table
from results import keep, load

from sslkit.runtime.context import Runtime

RESULTS = "gpu/gpu"
NETWORKS = ("resnet50", "vit_small_patch16_224")
NARROW = ("narrow_resnet", "narrow_vit")


def main() -> None:
    parser = cli.parser(__doc__, "table")
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="default: all but long")
    parser.add_argument("--only", nargs="*", help="methods, such as byol+dsa")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    if not args.table:
        runtime = Runtime(device=device_of(args.device))
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        for section in args.sections or [name for name in SECTIONS if name != "long"]:
            if section in ON_GPU and runtime.device.type != "cuda":
                raise SystemExit(f"{section} needs a GPU")
            SECTIONS[section](args.only or list(names()), runtime)
    print(table(load(RESULTS)))


def device_of(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise SystemExit("there is no GPU here: add --device cpu for the small part without one")
    return torch.device(name)


def correct(methods: list[str], runtime: Runtime) -> None:
    """Compare every method, and say what is out of its bounds."""
    for name in methods:
        for precision in BOUNDS if runtime.device.type == "cuda" else ("bfloat16",):
            gap = compare(name, runtime, precision)
            row = {"loss": gap.loss, "gradient": gap.gradient, "views": gap.views, "within": gap.within(precision)}
            keep(RESULTS, f"{name} | {precision} | {runtime.device.type}", row | about(runtime), part="correct")
            print(line(name, precision, gap), flush=True)


def sync(methods: list[str], runtime: Runtime) -> None:
    """List the calls of a step that wait for the GPU."""
    for name in methods:
        found = waiting_calls(name, runtime)
        keep(RESULTS, name, {"waits": found, **about(runtime)}, part="sync")
        print(f"{name:<36} {'; '.join(found) or 'waits for nothing'}", flush=True)


def resume(_: list[str], runtime: Runtime) -> None:
    """Compare a killed and resumed run with unbroken ones; on a GPU also with trainer.deterministic."""
    for deterministic in (False, True) if runtime.device.type == "cuda" else (False,):
        for method in ("byol+dsa", "mae+guide"):
            with tempfile.TemporaryDirectory() as scratch:
                found = gpu_resume.compare(method, Path(scratch), runtime, deterministic=deterministic)
            name = f"{method} | {'deterministic' if deterministic else 'as it is'} | {runtime.device.type}"
            keep(RESULTS, name, found | about(runtime), part="resume")
            print(name, found, flush=True)


def fast(_: list[str], runtime: Runtime, *, size: int = 224, batch: int = 256) -> None:
    """Images a second of every contestant, for each network."""
    for network in NETWORKS:
        torch.cuda.reset_peak_memory_stats(runtime.device)
        found = rates(contestants(network, runtime, size=size, batch=batch), batch, runtime, rounds=7, each=10)
        memory = round(torch.cuda.max_memory_allocated() / 2**30, 1)
        most = largest_batch("byol", network, runtime, size=size)
        row = {"rates": found, "gib": memory, "batch": batch, "largest": most, **about(runtime)}
        keep(RESULTS, network, row, part="fast")
        print(network, found, f"largest batch of byol {most}", flush=True)


def small(_: list[str], runtime: Runtime, *, batch: int = 256) -> None:
    """Images a second of narrow networks, as they are, compiled, and with CUDA graphs."""
    for network in NARROW:
        found = rates(small_contestants(network, runtime, batch=batch), batch, runtime, rounds=7, each=20)
        keep(RESULTS, network, {"rates": found, "batch": batch, **about(runtime)}, part="fast")
        print(network, found, flush=True)


def dsa(_: list[str], runtime: Runtime) -> None:
    """Time and memory of DSA's terms, and the share of a step of ResNet-50 at 224 px that they take."""
    on_gpu = runtime.device.type == "cuda"
    one = gpu_dsa.network_ms("resnet50", runtime) if on_gpu else None
    found = gpu_dsa.costs(runtime) if on_gpu else gpu_dsa.costs(runtime, sizes=(512,), repeats=3)
    for n, cost in found.items():
        share = {} if one is None else {"share": round(cost["ms"] / (one * n), 4)}
        keep(RESULTS, f"{n} | {runtime.device.type}", cost | share | about(runtime), part="dsa")
        print(n, cost | share, flush=True)


def data(_: list[str], runtime: Runtime) -> None:
    """Images a second from JPEG files, and a run's share of waiting for them."""
    on_gpu = runtime.device.type == "cuda"
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch) / "files"
        paths = gpu_data.write(folder, copies=gpu_data.COPIES if on_gpu else 2)
        found: dict[str, Any] = gpu_data.rates(folder, paths, runtime, batch=256 if on_gpu else 16)
        how = {"backbone": "resnet50" if on_gpu else "narrow_resnet", "batch": 256 if on_gpu else 16}
        found |= gpu_data.run(folder, Path(scratch) / "zoo", runtime, **how)
    keep(RESULTS, runtime.device.type, found | about(runtime), part="data")
    print(found, flush=True)


def long(_: list[str], runtime: Runtime, *, jobs: int = 8) -> None:
    """The study of guide, several runs at a time on one GPU; finished runs are skipped when it is called again."""
    study = [sys.executable, str(Path(__file__).parents[1] / "plugins" / "run.py"), "guide", "--jobs", str(jobs)]
    for words in ([], ["--epochs", "50"], ["--data", "letters"]):
        subprocess.run([*study, *words], check=True)


def about(runtime: Runtime) -> dict[str, str]:
    name = torch.cuda.get_device_name(runtime.device) if runtime.device.type == "cuda" else "CPU"
    return {"device": name, "torch": torch.__version__, "date": date.today().isoformat()}


def waiting_calls(name: str, runtime: Runtime) -> list[str]:
    """File and line of each call in a step that waits for the device."""
    method, batch = prepared(name, 32)
    method = method.to(runtime.device)
    optimizer = torch.optim.AdamW([p for p in method.parameters() if p.requires_grad], 1e-3)
    images, index, label = (batch[key].to(runtime.device) for key in ("images", "index", "label"))
    labels = {"labels": label} if method.objective.needs_labels else {}

    def step() -> None:
        method(images, index, **labels)["loss"].backward()
        optimizer.step()
        optimizer.zero_grad()
        method.after_step(0.5)

    method.shares.steps = 1  # not one of the steps in which the shares are measured
    step()
    method.shares.steps = 1
    step()
    method.shares.steps = 1
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            step()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    waits = [one for one in found if "synchroniz" in str(one.message)]
    return sorted({f"{os.path.basename(one.filename)}:{one.lineno}" for one in waits})


def line(name: str, precision: str, gap: Gap) -> str:
    verdict = "" if gap.within(precision) else "   OUT OF BOUNDS"
    return f"{name:<36} {precision:<9} loss {gap.loss:.1e}  gradient {gap.gradient:.1e}  views {gap.views:.1e}{verdict}"


WAYS = (correct, resume, sync, fast, small, dsa, data, long)
SECTIONS = {way.__name__: way for way in WAYS}
ON_GPU = ("sync", "fast", "small", "long")


if __name__ == "__main__":
    main()
