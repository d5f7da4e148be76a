"""Columns with data and options of their own, rows without a small form, and pictures of another kind."""

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from evaluation.results.result import Result
from evaluation.results.statistics import Estimate
from evaluation.studies import pictured, run, training
from evaluation.studies.claims import AGREES, DISAGREES, OPEN, Claim
from evaluation.studies.declaration import Paper
from evaluation.studies.pictured import OVERLAP, TERMS, Bounds, ClassMaps, Swept
from evaluation.studies.study import Lab
from evaluation.studies.training import Column, Row, Training, check_data
from sslkit.errors import RunFailed, UserError
from sslkit.terminal import say

sys.path.insert(0, str(Path(__file__).parents[3] / "recipes"))
from reproduce import STUDIES, train

PNG = b"\x89PNG"
ON = {"small": "digits", "paper": "imagenet"}


class Entry:
    """A trained network whose card has its quick numbers."""

    card: Mapping[str, Any] = {"after": {"probe": 0.7}}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """Results of two per protocol, of which the second has an `ap50`."""
    found: list[tuple] = []

    def evaluate_protocol(entry: Any, data: str, protocol: str, options: Mapping[str, Any], lab: Lab) -> list[Result]:
        found.append((data, protocol, dict(options)))
        others = {"top5": Estimate(0.9)}
        first = Result.from_estimate(Estimate(0.5), protocol=protocol, recipe="", metric="top1", others=others)
        return [first, Result.from_estimate(Estimate(0.2), protocol=protocol, recipe="", metric="ap50")]

    monkeypatch.setattr(training, "evaluate_protocol", evaluate_protocol)
    monkeypatch.setattr(training, "train_entry", lambda words, seed, lab: Entry())
    return found


def lab(root: Path, scale: str = "small") -> Lab:
    return Lab(scale=scale, root=root, zoo=root / "zoo", train=lambda words: None)


def table(columns: Mapping[str, Column], **changes: Any) -> Training:
    rows = {"a": Row(("method=simclr",), published={"one": 70.0}), "b": Row(published={"one": 60.0})}
    return Training(**{"caption": "T.", "rows": rows, "columns": columns, "judged_on": ON, "claims": (), **changes})


def test_columns_ask_each_question_once_with_their_data_and_options(asked: list[tuple], tmp_path: Path) -> None:
    own = {"options": {"shot": 1}, "small": {"shot": 1, "episodes": 9}}
    columns = {
        "one": Column("few_shot", **own),
        "top5": Column("few_shot", "top5", **own),
        "ap": Column("few_shot", "ap50", **own),
        "other": Column("few_shot", data={"small": "video:ROOT/films"}, options={"shot": 5}),
        "quick": Column("linear", card="probe"),
        "large": Column("few_shot", data={"paper": "coco2017", "small": ""}),
    }
    jobs = table(columns, seeds=(4,)).jobs(lab(tmp_path))
    assert list(jobs) == ["a | 4"]
    assert jobs["a | 4"]() == {"one": 0.5, "top5": 0.9, "ap": 0.2, "other": 0.5, "quick": 0.7}
    small = ("digits", "few_shot", {"shot": 1, "episodes": 9})
    assert asked == [small, (f"video:{tmp_path}/films", "few_shot", {"shot": 5})]


def test_rows_and_columns_that_are_not_measured_have_the_published_numbers(tmp_path: Path) -> None:
    columns = {"one": Column("linear"), "two": Column("linear", data={"paper": "pets"})}
    claims = (Claim("larger", "one", (("a", "b"),)), Claim("larger too", "two", (("a", "b"),)))
    summary = table(columns, judged_on={"small": "digits"}, claims=claims).summarize({"a | 0": {"one": 0.5}})
    assert summary.rows["a"]["one"].measured.value == 0.5 and summary.rows["a"]["two"].measured is None
    assert summary.rows["b"]["one"].measured is None and summary.rows["b"]["one"].published == 60.0
    assert summary.outcome == OPEN and "larger too" not in summary.sentence


def test_a_folder_that_is_not_made_is_named_with_its_command(tmp_path: Path) -> None:
    one = table({"one": Column("linear")}, makes={"films": "cut out=ROOT/films"})
    with pytest.raises(
        UserError, match=re.escape(f"{tmp_path / 'films'} is not there; make it by: cut out={tmp_path}")
    ):
        one.jobs(lab(tmp_path))
    (tmp_path / "films").mkdir()
    assert one.jobs(lab(tmp_path))


@pytest.mark.parametrize("name", ["kinetics400", "coco2017", "voc07", "fc100"])
def test_published_sets_of_every_kind_are_looked_for(name: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as raised:
        check_data([name], tmp_path)
    assert str(tmp_path) in str(raised.value)


def test_swept_options_are_drawn_as_lines(tmp_path: Path) -> None:
    rows = {name: Row(("method=byol",)) for name in ("nu=1", "nu=0.1", "eta=5")}
    one = Swept(caption="F.", rows=rows, columns={"inter-class": Column("x", unit="")}, judged_on=ON, claims=())
    found = {f"{name} | {seed}": {"inter-class": 0.1 * seed} for name in rows for seed in (0, 1)}
    one.draw(found, tmp_path / "fig4.png", "a figure")
    assert (tmp_path / "fig4.png").read_bytes().startswith(PNG)


def test_maps_measure_some_classes_and_are_drawn_from_their_files(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from evaluation.features.table import Features
    from sslkit.runtime.context import Runtime

    y = np.repeat(np.arange(5), 12)
    centres = 5 * np.eye(5, dtype=np.float32)[y]
    x = centres + np.random.default_rng(0).normal(size=centres.shape).astype(np.float32) / 10
    features = Features(x, y, [f"class {k}" for k in range(5)], "", np.array([f"{k}" for k in range(60)]))
    monkeypatch.setattr(pictured, "extract", lambda *args, **how: features)
    one = ClassMaps(caption="F.", rows={"a + b": Row(("x",))}, judged_on=ON, claims=(), classes=3, seeds=(0, 1))
    place = replace(lab(tmp_path), runtime=Runtime(out=tmp_path))
    found = {f"a + b | {seed}": one.numbers(Entry(), "a + b", seed, place) for seed in (0, 1)}
    assert found["a + b | 0"][OVERLAP] == pytest.approx(0)
    assert found["a + b | 0"]["inter-class"] == pytest.approx(2**0.5, abs=0.05)
    one.draw(found, tmp_path / "fig1.png", "a figure")
    assert (tmp_path / "fig1.png").read_bytes().startswith(PNG)
    (tmp_path / "maps-small" / "a_+_b.npz").unlink()
    with pytest.raises(UserError, match=r"is missing: delete .*fig1\.json"):
        one.draw(found, tmp_path / "fig1.png", "a figure")


@pytest.mark.parametrize(("sign", "expected"), [(-1, AGREES), (1, DISAGREES)])
def test_a_bound_agrees_if_a_higher_one_goes_with_a_lower_accuracy(sign: int, expected: str, tmp_path: Path) -> None:
    rows = {f"net {k}": Row(("x",)) for k in range(6)}
    one = Bounds(caption="T.", rows=rows, judged_on=ON, claims=(), seeds=(0,))
    noise = np.random.default_rng(0).normal(size=6) / 50
    found = {
        f"net {k} | 0": {"top-1": 0.5 + sign * k / 50, "risk": 1.0, **dict.fromkeys(TERMS, k + noise[k])}
        for k in range(6)
    }
    found["net 0 | 0"]["risk"] = 1.1
    summary = one.summarize(found)
    assert summary.outcome == expected and "over 6 networks" in summary.sentence
    one.draw(found, tmp_path / "t.png", "a figure")
    assert (tmp_path / "t.png").read_bytes().startswith(PNG)
    assert one.summarize({}).outcome == OPEN


@pytest.mark.nightly
def test_maps_and_bounds_of_trained_networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("data=digits", "epochs=1", "backbone=narrow_resnet")
    rows = {name: Row((f"method={name}", *words)) for name in ("simclr", "byol", "supervised")}
    how = {"caption": "F.", "rows": rows, "judged_on": ON, "claims": (), "seeds": (0,)}
    studies = {"fig1": ClassMaps(**how), "theorem4.1": Bounds(**how, images=60)}
    monkeypatch.setattr(run, "load_paper", lambda file: Paper("DSA", studies))
    for what in studies:
        summary = run.reproduce("dsa", what, out=tmp_path, folder=STUDIES, train=train)
        assert set(summary.rows) == set(rows)
        assert (tmp_path / "dsa" / f"{what}.png").read_bytes().startswith(PNG)


@pytest.mark.parametrize("stop", [KeyboardInterrupt, RunFailed])
def test_a_stop_names_the_way_to_go_on_that_this_command_has(stop: type, tmp_path: Path) -> None:
    def stopped(_: Any) -> None:
        raise stop(f"stopped; {say.CALL} continues zoo/a")

    with pytest.raises(stop, match=r"^stopped; the same command continues zoo/a$"):
        training.train_entry(("method=simclr",), 0, replace(lab(tmp_path), train=stopped))
