"""What a run's card has of its network at the end, as one table, and the decision on it."""

from collections.abc import Mapping
from typing import Any

from sslkit.backbones.wheels import EASIEST
from sslkit.decision import LABEL, LARGEST, RAW, READY, START, decide_shares
from sslkit.numerics.paired import Paired
from sslkit.numerics.wilson import units_of, with_interval
from sslkit.training.data import Data
from sslkit.training.evaluators import measures_of
from sslkit.training.quick_evaluation import DRAWS

FEW_LABELS = f"quick probe of 1 label a class ({DRAWS} draws)"
GAINS = {"knn": "kNN", "probe": "quick probe", "found": "other view found"}  # on the start
OF_VIEWS = {
    "alignment": "distance of two views (squared)",
    "uniformity": "uniformity (lower: more spread)",
    "lidar": "effective rank of images by views (LiDAR)",
}


def list_results(card: Mapping[str, Any], data: Data) -> list[str]:
    """Return the table: of the labelled images, of those of another kind, and without labels of views and RankMe."""
    lines = [*_list_kept(card), *(_list_labelled(card, data) if card.get("after") else [])]
    lines += _list_elsewhere(card["elsewhere"]) if "elsewhere" in card else []
    lines += _list_evaluators(card["evaluators"]) if "evaluators" in card else []
    if views := _views(card):
        lines += _list_views(*views)
    gains = [f"{name} {gain}" for name, gain in gains_of(card).items()]
    lines += [f"  after less before, on the same images: {', '.join(gains)}"] if gains and "init" in card else []
    if "diagnostics" in card and not card.get("after"):
        lines.append(_row("effective rank of the features (RankMe)", "", "", f"{card['diagnostics']['rankme']:.1f}"))
    return lines


def decide(name: str, card: Mapping[str, Any], data: Data) -> list[str]:
    """Return the decision by the quick probe on labelled images, or by views; [] where neither is measured."""
    if after := card.get("after"):
        nulls = {RAW: card["pixels"]["probe"], START: card["before"]["probe"], LARGEST: after["largest"]}
        return [f"{LABEL}quick probe: {decide_shares({name: after['probe']}, units_of(after), nulls)}"]
    if not (views := _views(card)):
        return []
    before, pixels, after = views
    nulls = {RAW: pixels["found"], START: before["found"]}
    return [f"{LABEL}{decide_shares({name: after['found']}, after['n'], nulls, decides=False, has_labels=False)}"]


def gains_of(card: Mapping[str, Any]) -> dict[str, Paired]:
    """The differences to the start, by measures in words."""
    return {GAINS[name]: Paired(**gain) for name, gain in card.get("gains", {}).items()}


def _list_kept(card: Mapping[str, Any]) -> list[str]:
    """What the weights are, where they are not the last ones."""
    best, between = card.get("kept"), card.get("interpolation")
    apart = "on images apart"
    if best and "by" in best:
        apart = f"by {best['by']}: that number is of the images that chose, so it is too good"
    lines = [f"  weights of epoch {best['epoch']} of {best['of']}, the best {apart}"] if best else []
    if between is None:
        return lines
    lines.append(f"  weights: {between['share']:g} of the training's and {1 - between['share']:g} of the start's")
    if scores := between.get("scores"):
        told = ", ".join(f"{share}: {100 * score:.1f} %" for share, score in scores.items())
        lines.append(f"    by the mean of kNN and quick probe on {between['images']:,} images apart, {told}")
    return lines


def _list_labelled(card: Mapping[str, Any], data: Data) -> list[str]:
    before, pixels, after = card["before"], card["pixels"], card["after"]
    units = units_of(after)
    lines = [_head(f"on {after['n']:,} {'held-out ' if data.held_out else ''}{data.unit}")]
    if units < after["n"]:
        lines += [f"  (intervals as of {units:,} images, since they come in groups)"]
    lines += [] if data.held_out else ["  (trained on too, without their labels: there is no test split)"]
    names = {
        "knn": f"quick {card['config']['eval']['k']}-nearest-neighbour accuracy",
        "probe": "quick probe accuracy (trained anew)",
    }
    lines += [_shares(name, before[key], pixels[key], after[key], units) for key, name in names.items()]
    lines.append(_shares(FEW_LABELS, before["few"], pixels["few"], after["few"]))
    first, last = (f"{numbers['inter']:.2f} / {numbers['intra']:.2f}" for numbers in (before, after))
    return [*lines, _row("inter-class distance / variance", first, "", last)]


def _list_elsewhere(numbers: Mapping[str, Any]) -> list[str]:
    before, pixels, after = (numbers[model] for model in ("before", "pixels", "after"))
    lines = [
        _head(f"on {after['n']:,} images of {numbers['data']}"),
        _shares(f"quick probe of {after['learned']:,} labels", before["probe"], pixels["probe"], after["probe"]),
        _shares(FEW_LABELS, before["few"], pixels["few"], after["few"]),
    ]
    if ready := numbers.get(EASIEST):
        shares = " and ".join(f"{100 * ready[key]:.1f} %" for key in ("probe", "few"))
        lines.append(f"  the same two of {EASIEST}, {READY}: {shares}")
    return lines


def _list_evaluators(numbers: Mapping[str, Any]) -> list[str]:
    before, after = (measures_of(numbers[time]) for time in ("before", "after"))
    return [
        _head("by evaluators"),
        *(
            _row(f"{name} {measure}", str(before.get(name, {}).get(measure, "")).partition(" (")[0], "", str(number))
            for name, measures in after.items()
            for measure, number in [*measures.items()][:1]
        ),
    ]


def _list_views(before: Mapping[str, float], pixels: Mapping[str, float], after: Mapping[str, float]) -> list[str]:
    recall = _shares(
        "other view of an image found among all", *(m["found"] for m in (before, pixels, after)), after["n"]
    )
    numbers = (
        _row(name, *(f"{measured[key]:.3f}" for measured in (before, pixels, after))) for key, name in OF_VIEWS.items()
    )
    return [_head(f"on {after['n']:,} training images, without labels"), recall, *numbers]


def _views(card: Mapping[str, Any]) -> tuple[Mapping[str, float], ...]:
    """The numbers of the first weights, of pixels and of the last ones; () without them."""
    views = card.get("views", {})
    if not all(views.get(time) for time in ("before", "after")):
        return ()
    return views["before"]["network"], views["after"]["pixels"], views["after"]["network"]


def _head(judged_on: str) -> str:
    return _row(judged_on, "before", "pixels", "pretrained")


def _shares(name: str, before: float, pixels: float, after: float, n: int | None = None) -> str:
    """A row in percent. n: images, for the interval of the last."""
    value, _, ends = with_interval(after, n or 1).partition(" %")
    return _row(
        name, f"{100 * before:.1f} %", f"{100 * pixels:.1f} %", f"{value} %{ends if n else ''}", len(ends) if n else 0
    )


def _row(name: str, before: str, pixels: str, after: str, beyond: int = 0) -> str:
    """beyond: characters at the end that stand right of the column."""
    return f"  {name}{before:>{max(1, 50 - len(name))}} {pixels:>8}   {after:>{10 + beyond}}"
