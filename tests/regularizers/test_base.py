"""A balance that depends on the objective, balance="auto", and the words that a regulariser takes for it."""

from typing import ClassVar

import pytest
from contract import build

import sslkit
from sslkit.errors import UserError
from sslkit.regularizers.base import Regularizer


class Chosen(Regularizer):
    """A regulariser without a term, whose balance depends on the objective."""

    automatic: ClassVar = {True: (3.0, 0.1), False: (0.3, 1.0)}


@pytest.mark.parametrize(
    ("given", "compares", "expected"),
    [
        ({"balance": "auto"}, True, (3.0, 0.1)),
        ({"balance": "auto"}, False, (0.3, 1.0)),
        ({"balance": "auto", "balance_until": 0.5}, True, (3.0, 0.5)),
        ({"balance": 2.0}, True, (2.0, 1.0)),
        ({"balance": None}, True, (None, 1.0)),
    ],
)
def test_an_automatic_balance_is_chosen_by_the_objective(given: dict, compares: bool, expected: tuple) -> None:
    plugin = Chosen(**{"balance_until": None, **given})
    plugin.beside(compares_views=compares)
    assert (plugin.balance, plugin.balance_until) == expected
    assert bool(plugin.choice) == (given["balance"] == "auto")
    assert ("until 50% of the run" in plugin.choice) == (given.get("balance_until") == 0.5)
    plugin.beside(compares_views=not compares)  # the choice is made once
    assert (plugin.balance, plugin.balance_until) == expected


@pytest.mark.parametrize("name", sslkit.regularizers())
def test_the_end_of_a_balance_without_a_balance_is_refused(name: str) -> None:
    with pytest.raises(UserError, match=r"balance_until=0\.1 is the end of a balance, and there is none"):
        build(f"byol+{name}", **{name: {"balance": None, "balance_until": 0.1}})


def test_the_end_of_an_automatic_balance_is_refused_where_none_is_chosen() -> None:
    assert build("mae+adc", adc={"balance_until": 0.5}).regularizers["adc"].balance_until == 0.5
    with pytest.raises(UserError, match="there is none"):
        build("byol+adc", adc={"balance_until": 0.5})


@pytest.mark.parametrize("plugin", ["adc", "sigreg", "visreg"])
def test_weights_that_would_harm_what_does_not_compare_views_are_balanced_there(plugin: str) -> None:
    beside_views, beside_mae = build(f"byol+{plugin}"), build(f"mae+{plugin}")
    assert beside_views.regularizers[plugin].balance is None
    assert "balance" not in beside_views.describe().get(plugin, "")
    assert beside_mae.regularizers[plugin].balance == 0.03
    assert beside_mae.describe()[plugin].endswith("balance 0.03, chosen for objectives that do not compare views")


def test_words_for_a_balance_are_those_that_a_regulariser_takes() -> None:
    with pytest.raises(UserError, match="koleo option balance must be a number, above 0"):
        build("byol+koleo", koleo={"balance": "auto"})
    with pytest.raises(UserError, match=r"dsa option balance must be .*auto.*, got 'none'"):
        build("byol+dsa", dsa={"balance": "none"})
