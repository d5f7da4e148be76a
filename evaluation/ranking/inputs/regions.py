"""Tasks made of parts of images: `boxes:SET`, objects of a detection set; `masks:SET`, windows of one with masks."""

from evaluation.datasets import Reading, Split
from evaluation.ranking.inputs import objects, windows

OPENERS = {objects.PREFIX: objects.open_objects, windows.PREFIX: windows.open_windows}


def parts(task: object) -> tuple[str, str] | None:
    """Return the prefix and the name of the set, ("boxes:", "voc07"); None for other tasks."""
    start = next((prefix for prefix in OPENERS if isinstance(task, str) and task.startswith(prefix)), None)
    return None if start is None else (start, str(task).removeprefix(start))


def open_parts(prefix: str, name: str, split: str, reading: Reading) -> Split:
    """Open the task. Raises UserError."""
    return OPENERS[prefix](name, split, reading)


def recipe_for(prefix: str) -> tuple[str, dict[str, list[str]]]:
    """Return the recipe that measures a model on such a set, and its options."""
    return ("detect", {}) if prefix == objects.PREFIX else ("evaluate", {"protocols": ["linear_seg", "knn_seg"]})
