"""An entry beside the weights that its run started from: each number before and after, and the paired difference."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from evaluation.judging.summary import evaluate_models, group_comparable
from evaluation.results.comparison import adjust, compare
from evaluation.results.result import Result
from evaluation.results.tables import value_of
from sslkit.errors import UserError
from sslkit.models.loading import load
from sslkit.runtime.distributed import rank
from sslkit.terminal import say
from sslkit.zoo.entry import WEIGHTS, ZooEntry, resizing_of, update
from sslkit.zoo.weights import sha256

START = "start"
FIELD = "against_start"  # of the card
USUAL = ("knn", "linear", "fine_tune")  # protocols of images with labels; of masks name linear_seg


def with_start(checkpoint: Any, zoo: Any, against: str, trust: Any) -> list[Any]:
    """Return the entry and its start, which sees the same squares: a difference is that of the weights alone.

    trust: see `sslkit.load`.

    Raises UserError for another word than start, for anything but one entry of a run with init=, and for the folder of
    a start whose weights have changed since.
    """
    if against != START:
        raise UserError(f"against={against}: an entry is evaluated against={START}, the weights of its run's init=")
    if zoo is not None or not isinstance(checkpoint, (str, Path)) or not Path(checkpoint).is_dir():
        raise UserError("against=start takes one zoo entry: checkpoint=runs/zoo/NAME")
    entry = ZooEntry.load(checkpoint)
    init = entry.card.get("init")
    if init is None:
        raise UserError(f"{checkpoint} started from random weights: against=start takes an entry of a run with init=")
    weights = Path(init["source"]) / WEIGHTS
    if weights.is_file() and sha256(weights) != init["sha256"]:
        raise UserError(f"{weights} are not the weights that {checkpoint} started from: they have changed since")
    size = entry.card["backbone"]["image_size"]
    start = load(init["source"], image_size=size, trust=trust)
    return [checkpoint, replace(start, resizing=resizing_of(entry.card, size))]


def evaluate_against(against: str, checkpoint: Any, zoo: Any, data: Any, protocols: Any, **how: Any) -> list[Result]:
    """Evaluate an entry and its start by `evaluate_models`, and tell the differences. protocols: None is `USUAL`."""
    both = with_start(checkpoint, zoo, against, how.get("trust"))
    results = evaluate_models(both, None, data, list(USUAL) if protocols is None else protocols, **how)
    if rank() == 0:
        tell_gains(Path(checkpoint), results)
    return results


def tell_gains(folder: Path, results: Sequence[Result]) -> None:
    """Print value and difference of each protocol and data set, and keep them on the card of the entry.

    results: of the entry first, then of its start. p is after Holm over all differences. What cannot be paired, as
    crowding, is left out.
    """
    pairs = group_comparable(list(results))
    tests = adjust([compare(*pair) for pair in pairs])
    say.line("after less before, on the same images")
    gains = []
    for (ours, its), test in zip(pairs, tests, strict=True):
        ends = "" if test.interval is None else " ({:.1f} to {:.1f})".format(*(100 * end for end in test.interval))
        says = f"{100 * test.difference:+.1f} points{ends}, p = {test.decisive_p:.2g}"
        say.line(f"  {ours.protocol} on {ours.data}: {value_of(its)} -> {value_of(ours)}: {says}")
        about = {"protocol": ours.protocol, "data": ours.data, "metric": ours.metric, "n": test.n}
        numbers = {"before": its.value, "after": ours.value, "difference": test.difference, "p": test.decisive_p}
        gains.append({**about, **numbers, "interval": test.interval and list(test.interval)})
    update(ZooEntry.load(folder), **{FIELD: gains})
