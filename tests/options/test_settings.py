"""Settings declare their type and range, and every value is checked against them."""

import dataclasses
import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import sslkit
from sslkit.errors import UserError
from sslkit.options.settings import (
    Declared,
    Limits,
    iter_settings,
    nest,
    overlaid,
    setting,
    storable,
    takes_text,
    with_default,
)
from sslkit.training.config import Config, parse_settings


@dataclass
class Inner:
    rate: float = setting(0.1, "a rate", above=0, below=1)
    sizes: list[int] | None = setting(None, "sizes", least=2)


@dataclass
class Outer:
    count: int = setting(3, "a count", least=1, most=9)
    kind: str = setting("a", "a or b", choices=("a", "b"))
    workers: int | str = setting("auto", "processes", least=0, choices=("auto",))
    title: str | None = setting(None, "text")
    on: bool = setting(True, "true or false")
    anything: Any = setting(None, "anything")
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"count": 0}, "count must be a whole number, at least 1 and at most 9, got 0"),
        ({"count": 10}, "at most 9, got 10"),
        ({"count": 2.0}, "whole number"),
        ({"count": True}, "whole number"),
        ({"count": "3"}, "whole number"),
        ({"count": None}, "whole number"),
        ({"kind": "c"}, "kind must be a or b, got 'c'"),
        ({"workers": -1}, "workers must be a whole number, at least 0, or auto, got -1"),
        ({"workers": "many"}, "or auto, got 'many'"),
        ({"title": 3}, "title must be text or null, got 3"),
        ({"title": "a\0b"}, "title must be text or null"),
        ({"title": "\udcff"}, "title must be text or null"),
        ({"on": 1}, "on must be true or false, got 1"),
        ({"inner": {"rate": 0}}, "inner.rate must be a number, above 0 and below 1, got 0"),
        ({"inner": {"rate": 1.0}}, "below 1, got 1.0"),
        ({"inner": {"rate": math.nan}}, "got nan"),
        ({"inner": {"rate": -math.inf}}, "got -inf"),
        ({"inner": {"sizes": [2, 1]}}, "inner.sizes must be a list, each a whole number, at least 2, or null"),
        ({"inner": {"sizes": "22"}}, "inner.sizes must be a list"),
        ({"inner": 3}, "inner must be a mapping of settings, got 3"),
        ({"inner": {"rat": 3}}, "there is no setting 'inner.rat': did you mean 'rate'?"),
        ({"cuont": 3}, "there is no setting 'cuont': did you mean 'count'?"),
    ],
)
def test_what_a_setting_does_not_allow_is_refused_with_its_path(given: dict, said: str) -> None:
    with pytest.raises(UserError) as refused:
        overlaid(Outer(), given)
    assert said in str(refused.value)


def test_what_is_allowed_is_taken() -> None:
    given = {
        "count": np.int64(9),
        "workers": 2,
        "title": "ä b=c",
        "anything": object,
        "inner": {"rate": 0.5, "sizes": (2, 3)},
    }
    made = overlaid(Outer(), given)
    assert (made.count, made.workers, made.title, made.inner.sizes) == (9, 2, "ä b=c", (2, 3))
    assert made.kind == "a" and made.on is True and Outer().inner.rate == 0.1


@pytest.mark.parametrize(
    "given",
    [{"count": np.int64(9)}, {"title": np.str_("ä")}, {"inner": {"rate": np.float32(0.5), "sizes": [np.int16(3), 4]}}],
)
def test_what_numpy_computed_becomes_what_files_can_hold(given: dict) -> None:
    made = storable(dataclasses.asdict(overlaid(Outer(), given)))
    assert yaml.safe_load(yaml.safe_dump(made)) == json.loads(json.dumps(made)) == made
    assert yaml.safe_load(yaml.safe_dump(storable(given))) == given


def test_a_run_of_numpys_numbers(tmp_path: Path) -> None:
    one = np.int64(1)
    data = {"data": {"source": "digits"}, "batch_size": np.int64(512), "image_size": np.int64(8)}
    given = {"epochs": one, "seed": one, **data, "method.dsa.nu": np.float32(0.25), "eval.tsne": np.int64(0)}
    for settings in (given, Config.from_mapping(given), dataclasses.replace(Config.from_mapping(given), epochs=one)):
        config, _ = parse_settings(settings, {})
        kept = config.to_dict()
        assert yaml.safe_load(yaml.safe_dump(kept)) == json.loads(json.dumps(dataclasses.asdict(config))) == kept
        assert config.method == {"name": "byol+dsa", "dsa": {"nu": 0.25}} and type(config.seed) is int
    with pytest.raises(UserError, match="epochs must be a whole number"):
        parse_settings(dataclasses.replace(config, epochs=0), {})
    assert sslkit.method("byol", image_size=np.int64(16), in_chans=one, seed=one).image_size == 16


def test_whole_numbers_become_floats_where_those_are_meant() -> None:
    one = Declared("lr", float, Limits(), 0.1, "")
    assert type(one.check(1)) is float
    with pytest.raises(UserError):
        one.check(True)


def test_a_path_is_its_text() -> None:
    assert Declared("data", str | list[str], Limits(), "digits", "").check(Path("a") / "b") == str(Path("a/b"))
    with pytest.raises(UserError):
        Declared("lr", float, Limits(), 0.1, "").check(Path("a"))


def test_only_text_is_put_in_quotes() -> None:
    kinds = {one.path: one.kind for one in iter_settings(Outer())}
    assert [path for path, kind in kinds.items() if takes_text(kind)] == ["kind", "title"]


def test_every_setting_of_a_run_allows_its_own_default_and_says_what_it_is() -> None:
    for one in iter_settings(Config()):
        assert one.check(one.default) == one.default
        assert one.help


def test_dotted_keys_are_settings_of_a_nested_one() -> None:
    given = {"method.dsa.nu": 0.2, "data": "digits", "batch_size": 64, "trainer.devices": 1, "epochs": 2}
    config = Config.from_mapping(given)
    assert config.method == {"name": "byol+dsa", "dsa": {"nu": 0.2}}
    assert (config.data.source, config.batch_size, config.trainer.devices) == ("digits", 64, 1)
    long = {"method": {"name": "byol+dsa", "dsa": {"nu": 0.2}}, "batch_size": 64, "data": {"source": "digits"}}
    assert config == Config.from_mapping({**long, "trainer": {"devices": 1}, "epochs": 2})
    assert Config.from_mapping({"method": "simclr", "method.views.flip": 0.0}).method["name"] == "simclr"
    assert given["data"] == "digits"


def test_a_mapping_that_is_given_is_not_changed() -> None:
    inner = {"batch_size": 64}
    assert nest({"data": inner, "data.pages": 0}, {}) == {"data": {"batch_size": 64, "pages": 0}}
    assert inner == {"batch_size": 64} and nest({3: 1, "a": 2}, {}) == {3: 1, "a": 2}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"trainer.devces": 1}, "no setting 'trainer.devces': did you mean 'devices'"),
        ({"trainr.devices": 1}, "no setting 'trainr': did you mean 'trainer'"),
        ({"trainer.devices": 0.5}, "trainer.devices must be"),
        ({"trainer": {"devices": 4}, "trainer.devices": 8}, "trainer.devices is given twice: 4 and 8"),
        ({"data": "digits", "data.source": "glyphs"}, "data.source is given twice: 'digits' and 'glyphs'"),
        ({"epochs": 3, "epochs.warmup": 1}, "epochs.warmup cannot be set: epochs is given as 3"),
        ({"trainer": 1, "trainer.devices": 1}, "trainer.devices cannot be set: trainer is given as 1"),
    ],
)
def test_dotted_keys_that_are_refused(given: dict, said: str) -> None:
    with pytest.raises(UserError, match=said):
        Config.from_mapping(given)


def test_a_subclass_changes_a_default_and_nothing_else() -> None:
    @dataclass
    class Other(Outer):
        count: int = with_default(Outer, "count", 5)

    (own,) = (one for one in iter_settings(Other()) if one.path == "count")
    (base,) = (one for one in iter_settings(Outer()) if one.path == "count")
    assert own == dataclasses.replace(base, default=5)
