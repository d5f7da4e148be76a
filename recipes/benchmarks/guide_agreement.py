"""Do the gradients of an objective and of its guide agree? Their cosine at the backbone's last layer.

    python recipes/benchmarks/guide_agreement.py           (three minutes; writes results/guide_agreement.json)
    python recipes/benchmarks/guide_agreement.py --table   (print the committed results)

300 steps of short_run.py, guide with its defaults. Every 15th step: the cosine of the two gradients, and their share.
"""

import argparse
import os
import statistics

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from results import keep, load
from short_run import steps

NAMES = ("simclr", "byol", "barlow_twins", "mae")
STEPS, EVERY = 300, 15


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--table", action="store_true", help="print the results and exit")
    if not parser.parse_args().table:
        torch.set_num_threads(1)
        for name in NAMES:
            keep("guide_agreement", name, {"steps": follow(name)})
    print(table(load("guide_agreement")))


def follow(name: str) -> list[dict[str, float]]:
    """Train, and return {"step", "cosine", "share"} of every 15th step."""
    found = []
    for step, method, terms in steps(name, "guide", STEPS):
        if step % EVERY == 0:
            last = [p for p in method.backbone.parameters() if p.dim() > 1][-1]
            found.append({"step": step, **compared(terms, last)})
    return found


def compared(terms: dict[str, torch.Tensor], weight: torch.Tensor) -> dict[str, float]:
    (guide,) = torch.autograd.grad(terms["guide"], weight, retain_graph=True)
    (objective,) = torch.autograd.grad(terms["loss"] - terms["guide"], weight, retain_graph=True)
    cosine = torch.cosine_similarity(guide.flatten(), objective.flatten(), dim=0).item()
    return {"cosine": round(cosine, 3), "share": round((guide.norm() / objective.norm()).item(), 3)}


def table(results: dict) -> str:
    lines = ["| objective | cosine, mean (least to most) | share at first | share at the end |", "|---|--:|--:|--:|"]
    for name, run in results["runs"].items():
        cosines = [step["cosine"] for step in run["steps"]]
        spread = f"{statistics.mean(cosines):+.2f} ({min(cosines):+.2f} to {max(cosines):+.2f})"
        lines.append(f"| {name} | {spread} | {run['steps'][0]['share']:.2f} | {run['steps'][-1]['share']:.2f} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
