"""Write recipes/conf/experiment/<objective>.yaml: the tuned settings, and their results."""

import statistics
from pathlib import Path

import yaml
from objectives.settings import BATCH, EPOCHS, FIXED, RESULTS, best, settings
from results import load
from seeds import of

FOLDER = Path(__file__).parents[2] / "conf" / "experiment"


def write_experiments() -> None:
    FOLDER.mkdir(exist_ok=True)
    results = load(RESULTS)
    for name in FIXED:
        if not of(results["runs"], name):
            print(f"{name} has not been run")
            continue
        made = {
            "method": settings(name),
            "epochs": EPOCHS,
            "batch_size": BATCH.get(name, 128),
            "optimizer": {"lr": best(name)["lr"]},
        }
        text = "# @package _global_\n" + comment(results, name) + yaml.safe_dump(made, sort_keys=False)
        (FOLDER / f"{name}.yaml").write_text(text)


def comment(results: dict, name: str) -> str:
    """Return a YAML comment with the results of the settings, plain and with DSA."""
    lines = [f"# {name} on 8,000 images of 28 pixels, tuned by recipes/benchmarks/objectives. On the embedded"]
    reached, date = [], results["date"]
    for method in (name, f"{name}+dsa"):
        by_seed = of(results["runs"], method)
        if by_seed:
            probe, knn = (100 * statistics.mean(r[k] for r in by_seed.values()) for k in ("probe", "knn"))
            date = max(r.get("made", results)["date"] for r in by_seed.values())
            seeds = f"{len(by_seed)} seed{'s' if len(by_seed) > 1 else ''}"
            weights = " (method.dsa.balance=null)" * method.endswith("+dsa")
            reached.append(f"{method}{weights} reaches a linear probe of {probe:.1f} %, 10-NN {knn:.1f} % ({seeds})")
    lines.append("# Fashion-MNIST " + ",\n# ".join(reached) + f"; {date}.")
    return "\n".join(lines) + "\n"
