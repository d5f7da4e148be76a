"""The shares of DSA's two terms: their gradients over the objective's, with the paper's weights.

    python recipes/benchmarks/dsa_shares.py           (writes results/dsa_shares.json)
    python recipes/benchmarks/dsa_shares.py --table   (print the committed results)

62 steps (one epoch) of short_run.py with DSA's defaults. Every sixth: the norms of the gradients of nu L_AM^s and of
upsilon L_con over that of the objective's terms, at the weights of the backbone's last layer.
"""

import argparse
import os
from statistics import median

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from objectives import FIXED
from results import keep, load
from short_run import steps
from torch import Tensor

RESULTS = "dsa_shares"
STEPS, EVERY = 62, 6
TERMS = {"L_AM": "dsa/arrange", "L_con": "dsa/consistency"}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", nargs="*", choices=[n for n in FIXED if n != "distill"], help="objectives")
    parser.add_argument("--table", action="store_true", help="print the results and exit")
    args = parser.parse_args()
    if not args.table:
        torch.set_num_threads(1)
        for name in args.only or [n for n in sorted(FIXED) if n != "distill"]:
            keep(RESULTS, name, {"steps": follow(name)})
            print(name, flush=True)
    print(table(load(RESULTS)))


def follow(name: str) -> list[dict[str, float]]:
    """Train, and return {"step", "L_AM", "L_con"} of every sixth step after the first."""
    found = []
    for step, method, terms in steps(name, "dsa", STEPS):
        if step and step % EVERY == 0:
            last = [p for p in method.backbone.parameters() if p.dim() > 1][-1]
            found.append({"step": step, **shares(terms, last)})
    return found


def shares(terms: dict[str, Tensor], weight: Tensor) -> dict[str, float]:
    objective = terms["loss"] - sum(terms[term] for term in TERMS.values())
    norms = [
        torch.autograd.grad(loss, weight, retain_graph=True)[0].norm().item()
        for loss in (objective, *(terms[term] for term in TERMS.values()))
    ]
    return {name: round(norm / norms[0], 4) for name, norm in zip(TERMS, norms[1:], strict=True)}


def table(results: dict) -> str:
    lines = ["| objective | nu L_AM, median (least to most) | upsilon L_con |", "|---|--:|--:|"]
    for name, run in results["runs"].items():
        cells = []
        for term in TERMS:
            values = [step[term] for step in run["steps"]]
            cells.append(f"{median(values):.2g} ({min(values):.2g} to {max(values):.2g})")
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
