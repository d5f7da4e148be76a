"""Keep models of a ground truth, that their measured accuracies are not all that is left of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from evaluation.protocols import fine_tune
from evaluation.tuning.keeping import card_of_accuracy, keep_tuned
from evaluation.tuning.task import Task
from evaluation.tuning.trials import open_runner
from sslkit.errors import UserError
from sslkit.runtime.context import Runtime
from sslkit.zoo.entry import ZooEntry

CHOSEN = ("lr", "weight_decay", "optimizer")  # of a setting, what a grid chooses


def keep_measured(
    task: Task, record: Mapping[str, Any], options: fine_tune.Options, source: str, runtime: Runtime
) -> ZooEntry | None:
    """Keep the network of the first seed, and say where; None, with a line, of a network that no entry can hold.

    record: of the ground truth. source: of the data, as it was named.
    """
    chosen = {name: record["chosen"][name] for name in CHOSEN}
    beta = next((tried["beta"] for tried in record["grid"] if chosen.items() <= tried.items()), None)
    settings, seeds = fine_tune.check_options(options, task.mirror)
    trial = fine_tune.final_trials(task, replace(settings[0], **chosen), seeds, keep=True)[0]
    measured = record["others"].get(f"seed {seeds[0]}", record)
    about = {
        "made": f"all weights tuned on {len(task.train)} images, learning rate {chosen['lr']:g}",
        "measured": card_of_accuracy(task.metric, measured, f"test images of {source}"),
    }
    try:
        with open_runner(task, fine_tune.NAME, replace(runtime, workers=1)) as runner:
            entry = keep_tuned(runner, trial, beta=beta, source=source, about=about)
    except UserError as error:
        runtime.say(f"{source}: {task.model.name} is not kept: {error}")
        return None
    runtime.say(f"{source}: {task.model.name} is kept as {entry.folder}")
    return entry
