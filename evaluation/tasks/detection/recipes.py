"""Named settings of detection, those of published tables."""

from collections.abc import Mapping
from typing import Any

from sslkit.errors import UserError
from sslkit.options.members import nearest

TASKS = {"boxes": "detection", "masks": "segmentation"}  # the protocol of each
USUAL = {"task": "boxes", "schedule": "full", "arch": "c4", "trials": 1}
RECIPES: dict[str, dict[str, Any]] = {  # the columns of table VII of Song et al. 2024
    "paper_voc07": {**USUAL, "data": "voc07", "trials": 5},
    "paper_voc0712": {**USUAL, "data": "voc0712", "trials": 5},
    "paper_coco": {**USUAL, "data": "coco2017", "task": "masks"},
}


def find_recipe(recipe: str | None) -> Mapping[str, Any]:
    """Return what a recipe says, or the usual without one. Raises UserError for an unknown name."""
    if recipe is not None and recipe not in RECIPES:
        raise UserError(f"there is no recipe {recipe!r}: {nearest(str(recipe), RECIPES)}")
    return RECIPES[recipe] if recipe else USUAL


def protocol_of(task: str | None, recipe: str | None) -> str:
    """Return the protocol of a task; None: that of the recipe. Raises UserError for unknown names."""
    task = find_recipe(recipe)["task"] if task is None else task
    if task not in TASKS:
        raise UserError(f"there is no task {task!r}: {nearest(str(task), TASKS)}")
    return TASKS[task]


def source_of(data: Any, recipe: str | None) -> Any:
    """Return the data that are named, or else the recipe's. Raises UserError without either."""
    source = find_recipe(recipe).get("data") if data is None else data
    if source is None:
        raise UserError(
            "name what to learn from: data=clipart_boxes, data=coco:FOLDER, data=voc07, voc0712 or coco2017; or "
            f"recipe={', recipe='.join(RECIPES)}"
        )
    return source
