"""The options of `solve`."""

from collections.abc import Sequence
from dataclasses import dataclass

from evaluation.datasets import LABELLED
from evaluation.features.extraction import LOADED
from sslkit.options.settings import setting

OUT = "runs/solve"
SHARED = (*LOADED, *LABELLED, "device", "seed", "progress")


@dataclass(frozen=True, kw_only=True)
class Options:
    budget: str | float = setting(
        "30min",
        "time in all, such as 90s, 30min, 2h; a number alone is minutes. What does not fit by a measured step is left "
        "out, and a line says so",
    )
    methods: Sequence[str] = setting(
        ("byol+guide",), "objectives that train new networks on the images, their labels unseen; []: none"
    )
    tune: bool = setting(True, "fine-tune the first networks by their probes; false: frozen features alone")
