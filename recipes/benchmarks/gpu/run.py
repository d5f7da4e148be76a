"""Training steps on a GPU: their correctness, what waits for the device, their speed and memory.

    cd recipes/benchmarks/gpu
    python run.py                        (every section, each in a process of its own)
    python run.py correct step           (some of them)
    python run.py step --only resnet50   (jobs whose name has one of these words)
    python run.py --dry                  (every section on the CPU with tiny sizes; keeps nothing)
    python run.py --table                (print the committed results)

correct     loss and gradient of a step in float32 against the CPU, in bfloat16 against float32; every objective plain
            and with every regulariser, a spread of them first
waits       the calls of a step that wait for the GPU
step        images a second and GiB of whole steps at 224 px in bf16, batch 256, in turns with the student alone,
            student and teacher, and lightly's own modules; narrow networks at 32 px, compiled, with CUDA graphs
memory      GiB of a step, beside what a dry run predicts
views       milliseconds for two views of 256 images, beside kornia, torchvision and lightly
parts       where the time of a step goes, its launches, and how long the GPU is idle
dsa         time and memory of DSA's terms at 512, 2,048 and 8,192 images
precision   time of networks, of the logits of 65,536 prototypes and of a CLIP prior by number format, and errors
resume      a killed and resumed run against unbroken ones, with and without trainer.deterministic
data        whole runs: from JPEG files by CPU workers and nvJPEG, and how long they wait for data
nccl        a run on two GPUs against one; needs two

A section stops to begin jobs after --minutes and says what is left; called again, it goes on there.
"""

import os
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from datetime import date
from importlib import import_module
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import cli
import torch
from gpu.jobs import Asked
from gpu.table import table
from results import commit, keep, load

from sslkit.runtime.context import Runtime

RESULTS = "gpu/gpu"
SECTIONS = ("correct", "waits", "step", "memory", "views", "parts", "dsa", "precision", "resume", "data", "nccl")
MINUTES = 4.0


def main() -> None:
    parser = cli.parser(__doc__, "table")
    parser.add_argument("sections", nargs="*", choices=[*SECTIONS, []], help="default: all")
    parser.add_argument("--only", nargs="*", default=[], help="words of a job's name, such as byol+dsa or resnet50")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="after which a section begins no other job")
    parser.add_argument("--again", action="store_true", help="also jobs that have a result of this device")
    parser.add_argument("--dry", action="store_true", help="on the CPU with tiny sizes; keeps nothing")
    args = parser.parse_args()
    sections = args.sections or SECTIONS
    if args.table:
        print(table(load(RESULTS)))
    elif args.dry or len(sections) == 1:
        asked = Asked(Runtime(device=device(args.dry)), dry=args.dry)
        for name in sections:
            print(table(section(name, asked, args.only, minutes=args.minutes, again=args.again)))
    else:
        raise SystemExit(children(sections, sys.argv[1:]))


def device(dry: bool) -> torch.device:
    if not dry and not torch.cuda.is_available():
        raise SystemExit("there is no GPU here: add --dry for the small form on the CPU")
    return torch.device("cpu" if dry else "cuda:0")


def children(sections: Mapping[str, Any] | tuple[str, ...] | list[str], words: list[str]) -> str | int:
    """Run each section in a process of its own, so that one that fails takes no other along. Return what failed."""
    options = [word for word in words if word not in SECTIONS]
    codes = {
        name: subprocess.run([sys.executable, __file__, name, *options], check=False, env=one_gpu(name)).returncode
        for name in sections
    }
    failed = [f"{name} (exit code {code})" for name, code in codes.items() if code]
    return f"failed: {', '.join(failed)}" if failed else 0


def one_gpu(name: str) -> dict[str, str]:
    """The environment of a section: one GPU is seen, but by nccl all."""
    seen = os.environ.get("CUDA_VISIBLE_DEVICES", "0")
    return dict(os.environ) if name == "nccl" else {**os.environ, "CUDA_VISIBLE_DEVICES": seen.split(",")[0]}


def section(name: str, asked: Asked, only: list[str], *, minutes: float, again: bool) -> dict[str, Any]:
    """Do the jobs of a section that have no result of this device; a dry one keeps nothing. Return what was found."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    jobs: dict[str, Callable[[], dict[str, Any]]] = import_module(f"gpu.{name}").jobs(asked)
    chosen = [key for key in jobs if not only or any(word in key.split(" | ") for word in only)]
    made, done = about(asked.runtime), {} if asked.dry or again else load(RESULTS).get(name, {})
    left = [key for key in chosen if done.get(key, {}).get("device") != made["device"]]
    print(f"{name}: {len(chosen)} jobs, {len(left)} to do on {made['device']}", flush=True)
    start, rows = time.monotonic(), {}
    for number, key in enumerate(left):
        if time.monotonic() - start > 60 * minutes:
            print(f"{name}: {len(left) - number} jobs are left after {minutes:g} minutes; the same command goes on")
            break
        row = rows[key] = jobs[key]() | made
        print(f"{number + 1}/{len(left)}  {time.monotonic() - start:.0f} s  {key}  {format_row(row)}", flush=True)
        if not asked.dry:
            keep(RESULTS, key, row, part=name)
    return {name: rows}


def format_row(row: Mapping[str, Any]) -> str:
    return ", ".join(
        f"{name} {value}" for name, value in row.items() if name not in ("device", "torch", "date", "commit")
    )


def about(runtime: Runtime) -> dict[str, str]:
    name = torch.cuda.get_device_name(runtime.device) if runtime.device.type == "cuda" else "CPU"
    return {"device": name, "torch": torch.__version__, "date": date.today().isoformat(), "commit": commit()}


if __name__ == "__main__":
    main()
