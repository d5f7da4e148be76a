"""What is said of detection: the next command, and what is refused before anything is shown."""

import shlex
from pathlib import Path
from types import SimpleNamespace

import pytest

from evaluation.judging.summary import judge_alone, shown
from evaluation.protocols.detection import results, words
from evaluation.protocols.detection.recipes import USUAL
from evaluation.protocols.detection.words import hint
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate
from sslkit.errors import UserError

PLAN = {**USUAL, "data": "clipart_boxes", "schedule": "smoke", "root": "data", "out": "runs/evaluation", "every": 5.0}


def model(folder: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(name="a", entry=folder and SimpleNamespace(folder=Path(folder)))


def typed(said: str) -> list[str]:
    """The words of a command as a shell reads them."""
    return shlex.split(said, comments=True)


def test_the_next_command_keeps_all_that_was_asked_for() -> None:
    plan = {**PLAN, "steps": 20, "arch": "fpn", "trainable": "frozen", "root": "big set", "lr": None}
    command = typed(hint([model("zoo/a")], ["zoo/a"], plan))
    told = {"data=clipart_boxes", "schedule=smoke", "steps=20", "arch=fpn", "trainable=frozen", "trials=3"}
    assert command[:3] == ["python", "recipes/detect.py", "checkpoint=[zoo/a,random:zoo/a]"]
    assert set(command[3:]) == told | {'root="big set"'}


def test_what_is_no_entry_is_named_as_it_was_asked_for() -> None:
    command = typed(hint([model()], ["random:zoo/a"], {**PLAN, "task": "masks"}))
    wanted = "checkpoint=random:zoo/a task=masks schedule=smoke trials=3 data=clipart_boxes"
    assert set(command[2:]) == set(wanted.split())


def test_nothing_is_said_where_nothing_follows() -> None:
    assert hint([model()], ["random:zoo/a"], {**PLAN, "trials": 5}) == hint([model(), model()], ["a", "b"], PLAN) == ""


def test_after_several_comes_the_page_of_their_zoo() -> None:
    assert hint([model("zoo/a"), model()], ["zoo/a", "random:zoo/a"], PLAN).startswith(
        "python recipes/report.py zoo=zoo "
    )


def test_rows_leave_out_the_trials_by_their_seeds_and_not_by_their_names() -> None:
    others = {name: Estimate(0.5) for name in ("coco_ap50", "seed 3", "seed 30 on the whole set")}
    row = Result("detection", "", "coco_ap", 0.4, others=others, seeds=[3])
    assert [one.metric for one in shown([row])] == ["coco_ap", "coco_ap50", "seed 30 on the whole set"]


def test_vocs_numbers_come_first_on_its_own_sets_alone(monkeypatch) -> None:
    monkeypatch.setattr(results, "_result", lambda _bench, _training, _records, _seeds, family, _seconds: family[0])
    first = {
        name: results.results_of(SimpleNamespace(test=SimpleNamespace(name=name)), SimpleNamespace(masks=False), [], [])
        for name in ("voc07", "voc0712_paper", "vocal_cords")
    }
    assert {name: found[0] for name, found in first.items()} == {
        "voc07": "voc_ap50",
        "voc0712_paper": "voc_ap50",
        "vocal_cords": "coco_ap",
    }


@pytest.mark.parametrize(
    ("checkpoint", "options", "said"),
    [
        ("random:narrow_resnet", {"trials": 0}, "trials must be a whole number, at least 1"),
        ("random:narrow_resnet", {"arch": "vit_pyramid"}, "takes timm's VisionTransformer"),
        ("random:narrow_vit", {}, "for a plain ViT take arch=vit_pyramid"),
        ("random:narrow_slow", {}, "takes clips of 16 frames, and a detector gives it images: .*action_eval.py"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_plan_is_shown(
    checkpoint: str, options: dict, said: str, monkeypatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(words, "described", lambda *_: pytest.fail("the plan was shown"))
    with pytest.raises(UserError, match=said):
        judge_alone(
            "detection", checkpoint, data="clipart_boxes", schedule="smoke", image_size=28, out=tmp_path, **options
        )
    assert capsys.readouterr().out == ""
