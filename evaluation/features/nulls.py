"""The nulls of a decision: raw pixels, and the networks as they were before training; a model must be above them."""

from collections.abc import Sequence
from dataclasses import replace

from evaluation.features.untrained import with_first_weights, with_random_weights
from sslkit.backbones.words import PIXELS, is_null
from sslkit.decision import NULLS
from sslkit.errors import UserError
from sslkit.models.loading import load
from sslkit.models.model import Model


def check_nulls(nulls: Sequence[str]) -> None:
    """Raises UserError for another word than `NULLS`."""
    for null in nulls:
        if null not in NULLS:
            raise UserError(f"nulls={null}: it is a list of {', '.join(NULLS)}")


def nulls_of(models: Sequence[Model], nulls: Sequence[str]) -> list[Model]:
    """Return the nulls beside models, each network once; without those that were asked for themselves.

    nulls: of `NULLS`. Untrained is the network with the weights that it began from, if a run started from given ones
    which still lie there, else with random weights; one that cannot be built, such as a given module, has none.
    """
    made = []
    trained = [model for model in models if not is_null(model.name)]
    if "pixels" in nulls and trained:
        made.append(load(PIXELS, in_chans=trained[0].in_chans))
    for model in trained if "untrained" in nulls else ():
        if (started := with_first_weights(model)) is not None:
            made.append(started)
        elif (untrained := with_random_weights(model, seed=0)) is not None:
            made.append(replace(untrained, name=f"random:{model.name}"))
    asked = {model.digest for model in models}
    return list({model.digest: model for model in reversed(made) if model.digest not in asked}.values())[::-1]
