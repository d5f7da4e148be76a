"""Options out of range are refused by name."""

import pytest

from sslkit.errors import UserError
from sslkit.regularizers.dsa import DSA, ArrangingMLP
from sslkit.regularizers.dsa.checks import parse_alpha


@pytest.mark.parametrize(
    "options",
    [
        {"arranger": "mpl"},
        {"mode": "views"},
        {"neighbours": "all"},
        {"variant": "papers"},
        {"arranger": "cosine", "variant": "code"},
        {"nu": -1.0},
        {"gamma": 0.0},
        {"eta": 0},
        {"tau": "median"},
        {"tau": 0.0},
        {"tau": 1e-10},
        {"alpha": "twice"},
        {"prior_precision": "int8"},
        {"mode": "view", "prior": "features:a.npy"},
    ],
    ids=str,
)
def test_bad_options_are_named(options: dict) -> None:
    with pytest.raises(UserError, match=next(iter(options))):
        DSA(8, **{"prior": "hog", **options})


@pytest.mark.parametrize(
    ("given", "meant"),
    [(0.5, (0.5, False)), ("1", (1.0, False)), ("relative:3", (3.0, True)), ("relative", (2.0, True))],
)
def test_alpha(given: float | str, meant: tuple[float, bool]) -> None:
    assert parse_alpha(given) == meant


def test_the_pieces_refuse_theirs() -> None:
    with pytest.raises(UserError, match="kernel"):
        ArrangingMLP(8, kernel="fast")
