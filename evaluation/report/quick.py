"""Numbers of an entry's card: the quick accuracies at the end of training, RankMe, size, each with its origin."""

from collections.abc import Mapping
from typing import Any

from evaluation.report import commands
from evaluation.report.cells import MISSING, Cell, dig, is_number, made, of_estimate, of_number, of_share
from evaluation.report.reading import Member

INTERVAL = "95 % Wilson, over images"


def neighbours(card: Mapping[str, Any]) -> int | None:
    """Return k of the quick k-NN vote."""
    k = dig(card, "config", "eval", "k")
    return k if isinstance(k, int) else None


def quick_judge(member: Member, part: str, key: str) -> Cell:
    """Return a number of the card from the end of training. part: "before" or "after". key: "knn", "probe", ..."""
    card = member.card
    value, n = dig(card, part, key), dig(card, part, "n")
    what, interval = {
        "knn": (f"{neighbours(card) or 'k'} nearest neighbours, cosine", INTERVAL),
        "probe": ("quick probe: a linear classifier on frozen features", INTERVAL),
        "inter": ("mean distance of the class means", ""),
        "intra": ("mean variance within a class, about its mean", ""),
    }[key]
    how = origin(card, protocol=what, weights=_weights(card, part), n=_images(n), interval=interval)
    return of_estimate(of_share(value, n), how) if key in ("knn", "probe") else of_number(value, "{:.3f}", how)


def _weights(card: Mapping[str, Any], part: str) -> str:
    if part == "after":
        return "after training"
    return f"{dig(card, 'init', 'source') or 'random'}, before training"


def origin(card: Mapping[str, Any], **facts: Any) -> str:
    part = {True: "held-out", False: "training"}.get(dig(card, "data", "held_out"))
    held_out = f"{part} {unit(card)} of {{}}" if part else "{}"
    return made(
        **{"data": held_out.format(dig(card, "data", "source") or "unnamed data"), **facts},
        seed=dig(card, "seed"),
        command=commands.training(card),
        date=dig(card, "date"),
    )


def unit(card: Mapping[str, Any]) -> str:
    """Return the unit of an entry's data."""
    return "images" if dig(card, "backbone", "frames") is None else "videos"


def rankme(card: Mapping[str, Any]) -> Cell:
    images = dig(card, "features", "images")
    how = origin(
        card,
        quantity="RankMe, the effective rank of the backbone's features",
        data=f"clean training {unit(card)} of {dig(card, 'data', 'source')}",
        n=_images(images),
        interval="none: one number of one matrix",
    )
    return of_number(dig(card, "diagnostics", "rankme"), "{:.1f}", how)


def _images(count: Any) -> str:
    return f"{count:,.0f} images" if is_number(count) else ""


def size(member: Member) -> Cell:
    """Make a cell of the number of trained parameters."""
    weights = member.weights
    if weights is None:
        return MISSING
    how = made(
        quantity="trained parameters of the backbone, without the statistics of batch normalisation",
        file=f"{weights.bytes:,} bytes",
        read_from=member.folder / "backbone.safetensors",
    )
    return Cell(_millions(weights.parameters), how, weights.parameters)


def _millions(parameters: int) -> str:
    return f"{parameters / 1e6:.2f} M" if parameters >= 5000 else f"{parameters:,}"
