"""Keep trained detectors as entries that predict."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evaluation.results.records import run_id
from evaluation.results.result import Result
from evaluation.tasks.detection.results import describe
from evaluation.tasks.detection.training import Training
from evaluation.tasks.detection.trials import Bench
from evaluation.tuning import ALL, NONE
from evaluation.tuning.keeping import MODELS, card_of_accuracy, check_keepable, keep_network
from sslkit.data.decode.scale import Scale
from sslkit.errors import UserError
from sslkit.files.writing import name_of
from sslkit.models.detectors.kept import keep, split_state
from sslkit.runtime.distributed import rank
from sslkit.runtime.waiting import from_first, together
from sslkit.zoo.entry import CARD


def keep_trials(
    bench: Bench, trials: Sequence[Training], records: Sequence[Mapping[str, Any]], results: Sequence[Result]
) -> list[str]:
    """Keep the detectors that `bench.keep` says in MODELS beside the records, and return their folders below `out`.

    records, results: of the trials, on rank 0; all ranks call it. A detector without its weights is trained again. Of a
    network that no entry can hold nothing is kept, with a line.
    """
    if bench.keep == NONE:
        return []
    try:
        check_keepable(bench.model)
    except UserError as error:
        bench.say(f"not kept: {error}")
        return []
    wanted = from_first("the kept detectors", lambda: _choose(bench.keep, records, results))
    folders = [_keep(bench, trials[number], about) for number, about in wanted.items()]
    for trial in trials:
        bench.release(trial)
    return [str(folder.relative_to(bench.folder.parent)) for folder in folders]


def _choose(which: str, records: Sequence[Mapping[str, Any]], results: Sequence[Result]) -> dict[int, dict[str, Any]]:
    """The wanted trials, each with what the card says of its accuracy."""
    first = results[0]
    values = [record["ap"][first.metric] for record in records]
    best = max(range(len(values)), key=values.__getitem__)
    images = f"test images of {first.data}"
    measured = {"value": first.value, "interval": first.interval, "n": first.details["images"][1]}
    if len(values) > 1:
        images += f": the mean of {len(values)} trials"
    about = {"measured": card_of_accuracy(first.metric, measured, images)}
    return dict.fromkeys(range(len(values)) if which == ALL else [best], about)


def _keep(bench: Bench, trial: Training, about: Mapping[str, Any]) -> Path:
    name = name_of(f"{bench.model.name}-{bench.name}-{run_id(bench.key(trial))[:8]}")
    folder = bench.folder.parent / MODELS / name
    if from_first(str(folder), (folder / CARD).is_file):
        return folder
    detector = bench.detector(trial)
    with together(str(folder)):
        if rank() == 0:
            body, rest = split_state(detector, bench.model.net)
            train, schedule = bench.train, trial.schedule
            epochs = round(schedule.steps * schedule.batch_size / len(train), 2)
            how = {"config": asdict(trial), "epochs": epochs, "seed": trial.seed}
            entry = keep_network(folder, bench.model, body, data=card_of_data(train), **how)
            made = f"{describe(trial, bench.model, train, bench.test)}, {len(train):,} images, seed {trial.seed}"
            about = {"arch": trial.arch, "classes": list(train.classes), "data": train.name, "made": made, **about}
            keep(entry, detector, rest, about, schedule.sizes)
    return folder


def card_of_data(train: Any) -> dict[str, Any]:
    """Return the card's field on the images that were learned from. train: `Boxes` or label maps."""
    scale, licence = getattr(train.pixels, "scale", Scale()), getattr(train, "licence", "")
    about = {"source": train.name, "images": len(train), "digest": train.digest, "licence": licence or None}
    limits = None if scale.range is None else list(scale.range)
    return {**about, "range": limits, "opacity": scale.opacity, "fill": scale.fill}
