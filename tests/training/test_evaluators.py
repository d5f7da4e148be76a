"""Evaluators of a run: told, kept, choosing, and without any effect on the training."""

import csv
import random
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import pytest
import torch

import sslkit
from sslkit.errors import UserError
from sslkit.models.model import Model
from sslkit.numerics import curves
from sslkit.training import monitor
from sslkit.training.evaluators import Measure


@dataclass
class Norms:
    """Gives the numbers of a list, one after the other, and moves all that it can reach."""

    values: list[float] = field(default_factory=lambda: [0.3, 0.5, 0.4, 0.2, 0.1, 0.05])
    name: str = "norms"
    better: int = 1
    calls: int = 0

    def check(self, model: Model) -> None:
        if model.image_size != 28:
            raise UserError("norms takes images of 28 px")

    def __call__(self, model: Model) -> Mapping[str, Measure]:
        assert not model.training and model(torch.zeros(2, 1, 28, 28)).shape == (2, model.width)
        torch.manual_seed(7)
        np.random.seed(7)
        random.seed(7)
        torch.set_num_threads(torch.get_num_threads() + 1)
        with torch.no_grad():
            for p in model.parameters():
                p.zero_()
        value = self.values[self.calls]
        self.calls += 1
        return {
            "share": Measure(value, value - 0.1, value + 0.1, better=self.better),
            "size": Measure(3.0, unit="rank"),
        }


@pytest.fixture
def run(small_run) -> dict:
    return {**small_run, "method": "simclr", "backbone": "narrow_resnet"}


def rows_of(entry: sslkit.ZooEntry) -> list[dict[str, str]]:
    with (entry.folder / "metrics.csv").open() as file:
        return list(csv.DictReader(file))


def test_the_measures_are_told_and_kept_and_the_weights_are_bitwise_the_same(run, capsys) -> None:
    plain = sslkit.pretrain(run, name="plain")
    capsys.readouterr()
    draws = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    entry = sslkit.pretrain(run, name="measured", evaluators=[Norms()])
    assert draws[:2] == (random.getstate(), np.random.get_state()[1].tolist())
    assert torch.equal(draws[2], torch.get_rng_state())
    theirs = plain.state_dict()
    assert all(torch.equal(value, theirs[name]) for name, value in entry.state_dict().items())
    said = capsys.readouterr().out
    assert "before    norms share 30.0 % (20.0 to 40.0), 0." in said
    assert "  norms share 50.0 % (40.0 to 60.0), 0." in said
    (row,) = (line for line in said.splitlines() if line.startswith("  norms share  "))
    assert row.split()[2:5] == ["30.0", "%", "40.0"]
    numbers = {row["epoch"]: row["eval/norms/share"] for row in rows_of(entry) if row["eval/norms/share"]}
    assert numbers == {"0": "0.3", "1": "0.5", "2": "0.4"}
    last = [row for row in rows_of(entry) if row["eval/norms/share"]][-1]
    assert float(last["eval/norms/share/low"]) == 0.4 - 0.1 and float(last["eval/norms/size"]) == 3
    assert float(last["eval/norms/seconds"]) > 0 and "eval/norms/size/low" not in last
    kept = entry.card["evaluators"]
    assert kept["before"]["norms"]["share"]["value"] == 0.3 and kept["after"]["norms"]["share"]["value"] == 0.4
    assert kept["after"]["norms"]["size"]["unit"] == "rank"


def test_the_best_epoch_by_an_evaluator_is_kept_and_a_run_without_gain_stops(run, capsys) -> None:
    how = {**run, "epochs": 5, "eval": {**run["eval"], "by": "norms"}}
    entry = sslkit.pretrain(how, keep="best", stop=2, evaluators=[Norms()])
    said = " ".join(capsys.readouterr().out.split())
    assert entry.card["kept"] == {"epoch": 1, "of": 3, "score": 0.5, "by": "norms"}
    assert "the epoch that is best by norms; ends after 2 evaluations without gain by norms" in said
    assert "the best by norms: that number is of the images that chose" in said
    assert entry.card["after"]["n"] == 40, "no held-out image is set apart"
    assert entry.card["evaluators"]["after"]["norms"]["share"]["value"] == 0.5, "of the epoch that is kept"
    lower = sslkit.pretrain(how, keep="best", evaluators=[Norms(better=-1)], name="lower")
    assert lower.card["kept"]["epoch"] == 5


def test_a_stopped_run_goes_on_to_the_same_weights_and_measures(run, monkeypatch) -> None:
    whole = sslkit.pretrain(run, name="whole", evaluators=[Norms()])
    close = monitor.History.close_epoch

    def stop(self, loop) -> None:
        close(self, loop)
        if loop.epoch == 1:
            raise KeyboardInterrupt

    norms = Norms()
    with monkeypatch.context() as patch:
        patch.setattr(monitor.History, "close_epoch", stop)
        with pytest.raises(KeyboardInterrupt):
            sslkit.pretrain(run, name="parted", evaluators=[norms])
    norms.calls = 2  # the end of the second epoch is made again
    parted = sslkit.pretrain(run, name="parted", resume=True, evaluators=[norms])
    ours = parted.state_dict()
    assert all(torch.equal(value, ours[name]) for name, value in whole.state_dict().items())
    assert parted.card["evaluators"] == whole.card["evaluators"]


class Bare:
    name = "bare"


REFUSED = {
    "no evaluator": ({}, [Bare()], "Bare is none: it needs a text `name`, `check"),
    "twice": ({}, [Norms(), Norms()], "two evaluators are called norms"),
    "its own check": ({"image_size": 32}, [Norms()], "norms takes images of 28 px"),
    "words without objects": ({"eval.protocols": ["knn"]}, [], "in Python give evaluators=evaluation.evaluators"),
    "unknown": ({"eval.by": "norm", "keep": "best"}, [Norms()], "eval.by=norm is no evaluator: did you mean 'norms'"),
    "none": ({"eval.by": "norm", "keep": "best"}, [], "there is none: eval.protocols= names them"),
    "chooses nothing": ({"eval.by": "norms"}, [Norms()], "give keep=best or stop= too"),
    "data of nothing": ({"eval.data": "clipart"}, [], r"eval\.data= is of eval\.protocols="),
}


@pytest.mark.parametrize("dry", [False, True])
@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_one_line_before_compute(case: str, dry: bool, run, tmp_path) -> None:
    settings, evaluators, told = REFUSED[case]
    nested = {name.removeprefix("eval."): value for name, value in settings.items() if name.startswith("eval.")}
    plain = {name: value for name, value in settings.items() if not name.startswith("eval.")}
    with pytest.raises(UserError, match=told):
        sslkit.pretrain({**run, **plain, "eval": {**run["eval"], **nested}}, dry=dry, evaluators=evaluators)
    assert not (tmp_path / "zoo").exists()


@pytest.mark.parametrize("answer", [0.5, {}, {"share": 0.5}])
def test_an_evaluator_that_gives_no_measures_ends_the_run_before_its_first_step(answer, run, monkeypatch) -> None:
    monkeypatch.setattr(Norms, "__call__", lambda self, model: answer)
    with pytest.raises(UserError, match=r"evaluator norms: it must return \{name: sslkit\.Measure\}"):
        sslkit.pretrain(run, evaluators=[Norms()])


def test_a_measure_of_which_neither_more_nor_less_is_better_chooses_nothing(run) -> None:
    how = {**run, "eval": {**run["eval"], "by": "norms"}, "keep": "best"}
    with pytest.raises(UserError, match=r"eval\.by=norms: of this measure neither more nor less is better"):
        sslkit.pretrain(how, evaluators=[Norms(better=0)])


def test_they_are_in_the_picture_of_the_curves(illustrated_run, monkeypatch) -> None:
    titles = []
    panel = curves.panel
    monkeypatch.setattr(curves, "panel", lambda axis, title, *more: (titles.append(title), panel(axis, title, *more)))
    run = {**illustrated_run, "backbone": "narrow_resnet", "epochs": 1}
    entry = sslkit.pretrain(run, evaluators=[Norms()])
    assert "norms/share" in titles and "norms/size" not in titles and not entry.card["missing"]
    assert (entry.folder / "loss.png").stat().st_size > 1000
