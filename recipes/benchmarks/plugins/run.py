"""Which plug-in, with which prior, helps which objective, on what, by how much?

    python recipes/benchmarks/plugins/run.py --jobs 2 [--parts short priors]     (skips finished runs)
    python recipes/benchmarks/plugins/run.py --table                  (writes tables, picture and page anew)
    python recipes/benchmarks/plugins/run.py --stale MINUTES          (runs of older code again, the cheapest first)

The plan was written before the runs: plan.py.
"""

import argparse
import os
import re
import sys
import tempfile
from collections import defaultdict
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # runs are parallel: of more threads each waits for the others

import cli
import fingerprints
import numpy as np
import torch
from keys import JUDGING, MARK, key_now, stale_parts
from objectives.settings import BATCH, best, config, round_numbers, settings
from plugins.answers import of_older_code, of_page, tables
from plugins.controls import objective_switched_off, write_data, write_novel_letters, write_shuffled
from plugins.plan import FORMS, PARTS, parts_of
from plugins.plot import draw
from results import commit, load, measure, path_of, put_tables

import evaluation
import sslkit
from sslkit import objectives as family
from sslkit.numerics.accuracy import probe_accuracy

RESULTS = "plugins/study"
TRANSFER = ("fashion", "clipart", "digits")


def main() -> None:
    args = arguments()
    before = load(RESULTS)["runs"]
    again = cheapest_stale(before, args.stale) if args.stale else []
    if not args.table:
        planned = {" | ".join(map(str, run)): run for section in args.parts for run in PARTS[section].runs()}
        cells = {key: partial(train_and_evaluate, *run) for key, run in planned.items()}
        if again:
            cells = {key: cells[key] for key in again}
        needed = {name for key in cells.keys() - before.keys() | {*again} for name in parts_of(key)}
        fingerprints.update(sorted(needed), (commit() or "")[:8])
        measure(RESULTS, cells, args.jobs, begin=partial(torch.set_num_threads, 1), again=again)
    runs, page = load(RESULTS)["runs"], path_of(RESULTS).with_suffix(".md")
    write_pages(runs)
    draw(runs, page.with_suffix(".png"))
    print(page.read_text())
    for key in again:
        print(f"{key}: probe {before[key]['probe']:.4f} by the older code, {runs[key]['probe']:.4f} now")


def write_pages(runs: dict[str, Any]) -> None:
    """Write the tables anew, and those of the study's page, with the marks of runs of older code."""
    page = path_of(RESULTS).with_suffix(".md")
    page.write_text(tables(runs))
    readme = page.parents[1] / "README.md"
    put_tables(readme, of_page(runs))
    text = readme.read_text(encoding="utf-8")
    readme.write_text(re.sub(rf"^{MARK.strip()}: .*$", lambda _: of_older_code(runs), text, count=1, flags=re.M))


def cheapest_stale(runs: dict[str, Any], minutes: float) -> list[str]:
    """The runs whose training is of older code, whole sets, objectives and seeds, the cheapest first.

    minutes: that their runs took; the cheapest is among them in any case.
    """
    blocks = defaultdict(list)
    for key, row in runs.items():
        if set(stale_parts(row, parts_of(key))) - {JUDGING}:
            data, name, _, epochs, seed = key.split(" | ")
            blocks[data, name, epochs, seed].append(key)
    chosen: list[str] = []
    for block in sorted(blocks.values(), key=lambda block: sum(runs[key]["seconds"] for key in block)):
        if not chosen or sum(runs[key]["seconds"] for key in [*chosen, *block]) <= 60 * minutes:
            chosen += block
    return chosen


def arguments() -> argparse.Namespace:
    parser = cli.parser(__doc__, "jobs", "table")
    parser.add_argument("--stale", type=float, metavar="MINUTES", help="run so many of older code again")
    parser.add_argument("--parts", nargs="*", choices=PARTS, default=list(PARTS))
    return parser.parse_args()


def train_and_evaluate(data: str, name: str, form: str, epochs: int, seed: int) -> dict[str, Any]:
    """Train and judge one form of an objective."""
    plugin, options = FORMS[form]
    with tempfile.TemporaryDirectory() as folder, objective_switched_off(form.endswith("alone")):
        scratch = Path(folder)
        images = scratch / "images.npz"
        write_data(data, images)
        if "shuffled" in form:
            write_shuffled(scratch / "shuffled.npy", images)
            options = {**options, "prior": options["prior"].format(shuffled=scratch / "shuffled.npy")}
        method = {"name": f"{name}+{plugin}", plugin: options} if plugin else {"name": name}
        how = {"lr": best(name)["lr"], "epochs": epochs, "seed": seed, "batch_size": BATCH.get(name, 128)}
        how |= {"backbone": f"narrow_{family.find(name).families[0]}", "out": scratch / "zoo"}
        how |= {"progress": False, "precision": "float32", "trainer": {"devices": 1}}  # a GPU's would be another
        entry = sslkit.pretrain(config(method | settings(name), str(images), **how))
        results = round_numbers(entry.card, "probe", "knn", "inter", "intra") | elsewhere(entry, data, scratch)
        results |= {"rankme": round(entry.card["diagnostics"]["rankme"], 2), "seconds": entry.card["seconds"]}
        results["device"] = entry.card["computed"]["device"]
    made = {"commit": (commit() or "")[:8], "date": date.today().isoformat()}
    return results | made | {"key": key_now(parts_of(" | ".join(map(str, (data, name, form, epochs, seed)))))}


def elsewhere(entry: sslkit.ZooEntry, data: str, scratch: Path) -> dict[str, float]:
    """Few-shot on letters that are new to every network, and the mean probe on the other sets."""
    write_novel_letters(scratch / "novel.npz")
    novel = evaluation.extract(entry, str(scratch / "novel.npz"), "test", cache=None, progress=False)
    results = {"few_shot": evaluation.few_shot(novel, n_way=5, k_shot=5, episodes=500).value}
    for task in (name for name in TRANSFER if name != data):
        file = scratch / f"{task}.npz"
        if task != "digits":
            write_data(task, file)
        where = task if task == "digits" else str(file)
        parts = [evaluation.extract(entry, where, split, cache=None, progress=False) for split in ("train", "test")]
        rows = (torch.as_tensor(np.asarray(x)) for features in parts for x in (features.x, features.y))
        results[f"on {task}"] = probe_accuracy(*rows)
    results["transfer"] = float(np.mean([value for key, value in results.items() if key.startswith("on ")]))
    return {key: round(value, 4) for key, value in results.items()}


if __name__ == "__main__":
    main()
