"""Options out of range are refused by name; those that DSA has no more say what stands in their place."""

import importlib
from pathlib import Path

import pytest
import yaml

import sslkit
from sslkit import members
from sslkit.errors import UserError
from sslkit.method import filled, signature
from sslkit.regularizers.dsa import DSA, ArrangingMLP
from sslkit.regularizers.dsa.options import FORMER, parse_alpha
from sslkit.training.config import Config
from sslkit.training.run import changed


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


OTHER = {
    "phi": "softplus",
    "normalise": "none",
    "inputs": "diff",
    "kernel": "blocked",
    "reduction": "mean",
    "score_mode": "inside",
    "rule": "fraction",
    "frobenius": "norm",
    "where": "backbone",
    "width": 16,
    "ddp": "local",
    "nu_warmup": 4,
    "prior_squared": False,
}


def small(**options: object) -> sslkit.Method:
    return sslkit.method("byol+dsa", backbone="narrow_resnet", image_size=28, in_chans=1, dsa=options)


def test_a_former_option_is_dropped_at_its_default_and_else_refused_with_what_replaces_it() -> None:
    assert not FORMER.keys() & members.options(DSA).keys()
    assert small(**{name: gone.default for name, gone in FORMER.items()}, eta=3).regularizers["dsa"].eta == 3
    for name, gone in FORMER.items():
        with pytest.raises(UserError, match=f"^dsa has no option '{name}' any more: ") as raised:
            small(**{name: OTHER.get(name, True)})
        assert gone.instead in str(raised.value)


def test_a_run_of_before_may_go_on_if_its_former_options_have_their_defaults(tmp_path) -> None:
    """Command lines wrote every option into config.yaml; Python's callers those that they gave."""
    now = Config.from_mapping({"method": {"name": "byol+dsa", **signature("byol+dsa")}})
    old = now.to_dict()
    del old["method"]["dsa"]["variant"]
    old["method"]["dsa"] |= {name: gone.default for name, gone in FORMER.items()}

    def written(dsa: dict) -> dict:
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(old | {"method": old["method"] | {"dsa": dsa}}))
        return changed(tmp_path, now)

    assert written(old["method"]["dsa"]) == {} == written({"eta": 20, "phi": "relu"})
    assert written({"eta": 3}) == {"method.dsa.eta": (3, 20)}
    assert written({"variant": "code", "nu": 0.1}) == {"method.dsa.variant": ("code", "paper")}
    with pytest.raises(UserError, match="no option 'phi' any more"):
        written({"phi": "softplus"})
    assert filled("byol+dsa") == filled({"name": "byol+dsa", "dsa": {"ddp": "gathered", "nu": 0.1}, "views": None})


def test_the_options_of_the_study_of_dsa_are_there(monkeypatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parents[3] / "recipes" / "benchmarks"))
    for given in importlib.import_module("dsa_effect").VARIANTS.values():
        assert members.check_options(DSA, given or {}, "dsa") == (given or {})


def test_checkpoints_of_before_hold_a_count_more() -> None:
    dsa = DSA(8, prior="hog")
    dsa.load_state_dict(dsa.state_dict() | {"calls": 7})
