"""Options out of range are refused by name."""

import pytest

from sslkit.errors import UserError
from sslkit.regularizers.dsa import DSA
from sslkit.regularizers.dsa.options import parse_alpha


@pytest.mark.parametrize(
    "options",
    [
        {"arranger": "mpl"},
        {"mode": "views"},
        {"neighbours": "all"},
        {"ddp": "global"},
        {"where": "head"},
        {"nu": -1.0},
        {"gamma": 0.0},
        {"eta": 0},
        {"tau": "median"},
        {"tau": 0.0},
        {"alpha": "twice"},
        {"where": "backbone"},
        {"kernel": "fast"},
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
