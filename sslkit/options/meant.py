"""The settings that a person may mean by a name that is none: one of a group, or the name in another program."""

from collections.abc import Mapping
from typing import Any

ELSEWHERE = {  # what other programs call a setting
    "accelerator": ("device",),
    "arch": ("backbone", "checkpoint"),
    "checkpoint": ("zoo", "init"),
    "batchsize": ("batch_size",),
    "dataset": ("data",),
    "dataset_path": ("data",),
    "entry": ("checkpoint", "zoo"),
    "gpus": ("trainer.devices", "device"),
    "img_size": ("image_size",),
    "learning_rate": ("optimizer.lr",),
    "max_epochs": ("epochs",),
    "metric": ("metrics",),
    "model": ("backbone", "checkpoint", "zoo"),
    "models": ("checkpoint", "zoo"),
    "num_epochs": ("epochs",),
    "num_workers": ("workers",),
    "output": ("out",),
    "output_dir": ("out",),
    "ped": ("reference",),  # ped.reference=
    "path": ("data", "folder"),
    "pretrained": ("init",),
    "protocol": ("protocols",),
    "resolution": ("image_size",),
    "weights": ("init", "checkpoint", "zoo"),
    "zoo": ("checkpoint",),
}

VALUES_ELSEWHERE = {  # what other programs call a value
    "16-mixed": "float16",
    "32-true": "float32",
    "bf16": "bfloat16",
    "bf16-mixed": "bfloat16",
    "fp16": "float16",
    "fp32": "float32",
    "gpu": "cuda",
}


def meanings(name: str, tree: Mapping[str, Any], *, inside: bool = False) -> list[str]:
    """The settings that are found in a group, or that another program calls so.

    inside: the name was given in a group; only settings outside of the groups are meant.
    """
    if inside:
        return [path for path in (name, *ELSEWHERE.get(name, ())) if "." not in path and path in tree]
    groups = {key: group for key, group in tree.items() if isinstance(group, Mapping) and key != "hydra"}
    grouped = [f"{key}.{name}" for key, group in groups.items() if name in group]
    elsewhere = [path for path in ELSEWHERE.get(name, ()) if _is_there(path, tree)]
    return grouped or elsewhere


def _is_there(path: str, tree: Any) -> bool:
    for key in path.split("."):
        if not isinstance(tree, Mapping) or key not in tree:
            return False
        tree = tree[key]
    return True
