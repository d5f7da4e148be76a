"""Training steps on a GPU: their correctness, the calls that wait for the device, and their speed.

    cd recipes/benchmarks
    python gpu.py correct            (every objective, plain and with each regulariser; writes results/gpu.json)
    python gpu.py sync               (a step may not wait for the GPU)
    python gpu.py fast               (images a second of whole steps at 224 px, bf16)
    python gpu.py correct --device cpu --only simclr byol+guide   (small, without a GPU: half precision alone)
    python gpu.py --table            (print the committed results)

correct: terms and gradient of a training step in float32 against the CPU, and in bfloat16 against float32 on the same
device, with the bounds of gpu_correct.py; views from the same draws. TF32 is off. sync: PyTorch's check for waiting
calls, on the third step of each method; the second has compiled and allocated. fast: ResNet-50 and ViT-S/16, batch 256,
whole steps from uint8 images on the device, in turns with the bare network's forward and backward and lightly's parts.
"""

import argparse
import os
import warnings
from datetime import date

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from gpu_correct import BOUNDS, Gap, compare, names, prepared
from gpu_fast import contestants, rates
from results import keep, load

RESULTS = "gpu"
SECTIONS = ("correct", "sync", "fast")
NETWORKS = ("resnet50", "vit_small_patch16_224")


def main() -> None:
    args = arguments()
    if not args.table:
        device = device_of(args.device)
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        for section in args.sections:
            {"correct": correct, "sync": sync, "fast": fast}[section](args.only or list(names()), device)
    print(table(load(RESULTS)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], default=SECTIONS)
    parser.add_argument("--only", nargs="*", help="methods, such as byol+dsa")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--table", action="store_true", help="print the results and exit")
    return parser.parse_args()


def device_of(name: str) -> torch.device:
    if name == "cuda" and not torch.cuda.is_available():
        raise SystemExit("there is no GPU here: add --device cpu for the small part without one")
    return torch.device(name)


def hardware(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"


def correct(methods: list[str], device: torch.device) -> None:
    """Compare every method, and say what is out of its bounds."""
    for name in methods:
        for precision in BOUNDS if device.type == "cuda" else ("bfloat16",):
            gap = compare(name, device, precision)
            row = {"loss": gap.loss, "gradient": gap.gradient, "views": gap.views, "within": gap.within(precision)}
            about = {"device": hardware(device), "torch": torch.__version__, "date": date.today().isoformat()}
            keep(RESULTS, f"{name} | {precision} | {device.type}", row | about, part="correct")
            print(line(name, precision, gap), flush=True)


def sync(methods: list[str], device: torch.device) -> None:
    """List the calls of a step that wait for the GPU."""
    if device.type != "cuda":
        raise SystemExit("sync needs a GPU")
    for name in methods:
        found = waiting_calls(name, device)
        keep(RESULTS, name, {"waits": found, "device": hardware(device)}, part="sync")
        print(f"{name:<36} {'; '.join(found) or 'waits for nothing'}", flush=True)


def fast(_: list[str], device: torch.device, *, size: int = 224, batch: int = 256) -> None:
    """Images a second of every contestant, for each network."""
    if device.type != "cuda":
        raise SystemExit("fast needs a GPU")
    for network in NETWORKS:
        found = rates(contestants(network, device, size=size, batch=batch), batch, device, rounds=7, each=10)
        memory = round(torch.cuda.max_memory_allocated() / 2**30, 1)
        about = {"device": hardware(device), "torch": torch.__version__, "date": date.today().isoformat()}
        keep(RESULTS, network, {"rates": found, "gib": memory, "batch": batch, **about}, part="fast")
        print(network, found, flush=True)


def waiting_calls(name: str, device: torch.device) -> list[str]:
    """File and line of each call in a step that waits for the device."""
    method, batch = prepared(name, 32)
    method = method.to(device)
    optimizer = torch.optim.AdamW([p for p in method.parameters() if p.requires_grad], 1e-3)
    images, index, label = (batch[key].to(device) for key in ("images", "index", "label"))
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


def table(results: dict) -> str:
    """The largest gap of each objective over its regularisers, by precision."""
    lines = ["| objective | precision | device | methods | loss | gradient | views | out of bounds |"]
    lines += ["|---|---|---|--:|--:|--:|--:|---|"]
    groups: dict[tuple[str, str, str], dict[str, dict]] = {}
    for key, row in results.get("correct", {}).items():
        name, precision, _ = key.split(" | ")
        groups.setdefault((name.partition("+")[0], precision, row["device"]), {})[name] = row
    for (objective, precision, device), rows in groups.items():
        most = [f"{max(row[part] for row in rows.values()):.1e}" for part in ("loss", "gradient", "views")]
        out = ", ".join(name for name, row in rows.items() if not row["within"])
        lines.append(f"| {objective} | {precision} | {device} | {len(rows)} | {' | '.join(most)} | {out} |")
    for network, row in results.get("fast", {}).items():
        bare = row["rates"]["bare network"]
        lines += [
            "",
            f"| {network}, batch {row['batch']}, {row['device']} | images/s | of the bare network |",
            "|---|--:|--:|",
        ]
        lines += [f"| {name} | {rate:,.0f} | {rate / bare:.0%} |" for name, rate in row["rates"].items()]
    for name, row in results.get("sync", {}).items():
        lines += [f"{name} waits at {', '.join(row['waits'])}"] if row["waits"] else []
    return "\n".join(lines)


if __name__ == "__main__":
    main()
