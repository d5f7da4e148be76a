"""What is said of detection: the next command, and what is refused before anything is shown."""

import shlex
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from unfolded import unfolded

import sslkit
from evaluation.judging.summary import evaluate_by_protocol, evaluate_models, list_rows
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate
from evaluation.tasks.detection import measure, output, results, trials
from evaluation.tasks.detection.options import Options
from evaluation.tasks.detection.output import hint, lines_of_kept
from evaluation.tasks.detection.recipes import USUAL, protocol_of, source_of
from sslkit.errors import UserError

PLAN = USUAL | {"data": "clipart_boxes", "schedule": "smoke", "root": "data", "out": "runs/evaluation"}
PLAN["save_seconds"] = 5.0


def model(folder: str | None = None) -> SimpleNamespace:
    return SimpleNamespace(name="a", entry=folder and SimpleNamespace(folder=Path(folder)))


def typed(said: str) -> list[str]:
    """The words of a command as a shell reads them."""
    return shlex.split(said, comments=True)


def test_kept_models_are_named_with_the_command_that_predicts() -> None:
    details = [SimpleNamespace(details={"kept": ["models/x", "models/y"]}), SimpleNamespace(details={})]
    lines = lines_of_kept([SimpleNamespace(folder=Path("zoo/a"), results=details)])
    assert lines[:2] == ["kept      zoo/a/models/x", "kept      zoo/a/models/y"]
    assert lines[2] == "predict   python recipes/predict.py checkpoint=zoo/a/models/x data=path/to/images"
    assert lines_of_kept([SimpleNamespace(folder=Path("zoo/a"), results=details[1:])]) == []


def test_the_next_command_keeps_all_that_was_asked_for() -> None:
    plan = {**PLAN, "steps": 20, "arch": "fpn", "tune": "none", "root": "big set", "lr": None}
    plan |= {"range": [0, 4095], "counts": "raise"}
    command = typed(hint([model("zoo/a")], ["zoo/a"], plan))
    told = {"data=clipart_boxes", "schedule=smoke", "steps=20", "arch=fpn", "tune=none", "trials=3"}
    assert command[:3] == ["python", "recipes/detect.py", "checkpoint=[zoo/a,random:zoo/a]"]
    assert set(command[3:]) == told | {'root="big set"', "range=[0,4095]"}


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
    assert [one.metric for one in list_rows([row])] == ["coco_ap", "coco_ap50", "seed 30 on the whole set"]


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
        ("random:narrow_vit", {}, "for a plain ViT use arch=vit_pyramid"),
        ("random:narrow_slow", {}, "takes clips of 16 frames, but detection needs an image model: .*action_eval.py"),
    ],
)
def test_what_cannot_be_done_is_refused_before_the_plan_is_shown(
    checkpoint: str, options: dict, said: str, monkeypatch, capsys: pytest.CaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(output, "describe", lambda *_: pytest.fail("the plan was shown"))
    with pytest.raises(UserError, match=said):
        evaluate_by_protocol(
            "detection",
            checkpoint,
            zoo=None,
            data="clipart_boxes",
            schedule="smoke",
            image_size=28,
            out=tmp_path,
            **options,
        )
    assert capsys.readouterr().out == ""


QUICK = {"schedule": "smoke", "steps": 1, "batch_size": 2}


def test_evaluate_and_detect_go_the_same_way(own: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(trials, "draw_predictions", lambda *_, **__: None)
    opened, real = [], measure.open_splits
    monkeypatch.setattr(measure, "open_splits", lambda *a, **k: opened.append(a) or real(*a, **k))
    both = [sslkit.load(f"random:narrow_resnet:{seed}", image_size=28) for seed in (1, 2)]
    place = {"zoo": None, "data": f"coco:{own}", "out": tmp_path / "out", "progress": False}
    first = evaluate_by_protocol("detection", both, **place, **QUICK)
    said = capsys.readouterr().out
    assert len(opened) == 1, "the set is opened once for both"
    second = evaluate_models(both, protocols=["detection"], options={"detection": QUICK}, **place)
    assert capsys.readouterr().out == said, "nothing is trained again, and the same is said"
    assert [replace(one, date="") for one in first] == [replace(one, date="") for one in second] and len(first) == 4
    words = " ".join(said.split())  # lines are folded, by the length of the folder
    assert words.count("12 training images") == 2 and words.count("1 trial of 1 steps of 2 images") == 2
    heads = [line.split(" ")[0] for line in said.splitlines() if line[:1].isalpha()]
    assert [head for head in heads if head in ("pictures", "results", "seconds")] == ["pictures", "seconds", "results"]
    assert "next  " not in said, "after several that are no entries nothing follows"


def test_the_judge_hands_on_every_option_to_the_next_command(own: Path, tmp_path: Path, capsys, monkeypatch) -> None:
    monkeypatch.setattr(trials, "draw_predictions", lambda *_, **__: None)
    asked = {"data": f"coco:{own}", "root": str(tmp_path), "out": str(tmp_path / "out"), "seed": 3, "save_seconds": 5.0}
    evaluate_by_protocol(
        "detection", "random:narrow_resnet", None, image_size=28, progress=False, tune="none", **asked, **QUICK
    )
    (line,) = (line for line in unfolded(capsys.readouterr().out).splitlines() if line.startswith("next "))
    kept = {
        **QUICK,
        **asked,
        "checkpoint": "random:narrow_resnet",
        "tune": "none",
        "image_size": 28,
        "trials": 3,
    }
    del kept["save_seconds"]  # changes no number
    assert set(typed(line)[3:]) == {f"{name}={value}" for name, value in kept.items()}


def test_a_recipe_says_what_is_not_given() -> None:
    assert vars(Options().resolve_recipe()) == {**vars(Options()), "schedule": "full", "arch": "c4", "trials": 1}
    settled = Options(recipe="paper_voc07", arch="fpn").resolve_recipe()
    assert (settled.schedule, settled.arch, settled.trials) == ("full", "fpn", 5)
    assert source_of(None, "paper_coco") == "coco2017" and source_of("voc07", "paper_coco") == "voc07"
    assert protocol_of(None, None) == protocol_of("boxes", "paper_coco") == "detection"
    assert protocol_of(None, "paper_coco") == protocol_of("masks", None) == "segmentation"
    for asked in (lambda: Options(recipe="paper_voc").resolve_recipe(), lambda: protocol_of(None, "paper_voc")):
        with pytest.raises(UserError, match="there is no recipe 'paper_voc': did you mean"):
            asked()
    with pytest.raises(UserError, match="there is no task 'mask': did you mean 'masks'"):
        protocol_of("mask", None)
    with pytest.raises(UserError, match="name what to learn from"):
        source_of(None, None)
