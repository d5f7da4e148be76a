"""Every command on the page is one that its program takes, and the models and data that it names exist."""

import html
import json
import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from report_zoo import HOSTILE, make_entry, make_zoo

import evaluation.judging.summary
import evaluation.ranking.summary
import evaluation.ranking.truth.ground_truth
import sslkit
from evaluation.features.zoo_members import members
from evaluation.ranking.ranking import Ranking
from evaluation.report import commands, write_report
from evaluation.results import store
from evaluation.results.result import Result
from evaluation.results.statistics import Estimate
from sslkit import ZooEntry

TASKS = (
    (sslkit, "pretrain"),
    (evaluation.judging.summary, "evaluate_models"),
    (evaluation.judging.summary, "evaluate_by_protocol"),
    (evaluation.ranking.summary, "rank_tasks"),
    (evaluation.ranking.truth.ground_truth, "ground_truth"),
)


def on_page(path: Path) -> list[str]:
    """The commands that are shown, and those in the origins of numbers."""
    source = path.read_text()
    shown = re.findall(r'<code class="command">(.*?)</code>', source, re.DOTALL)
    origins = re.findall(
        r"^command: (.*)$", html.unescape(" \n".join(re.findall(r'title="(.*?)"', source, re.DOTALL))), re.M
    )
    return list(dict.fromkeys(html.unescape(one).strip() for one in (*shown, *origins)))


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What the programs were asked for, in place of doing it."""
    asked = []

    def record(*given: Any, **options: Any) -> Any:
        asked.append(dict(given[0]) if given and isinstance(given[0], dict) else options)
        raise SystemExit(0)

    for module, name in TASKS:
        monkeypatch.setattr(module, name, record)
    return asked


@pytest.fixture
def run_all(typed, taken, tmp_path: Path):
    """run_all(page): each of its commands is run; gives the program of each and what it was asked for."""

    def run(page: Path) -> list[tuple[str, dict[str, Any]]]:
        done = []
        for command in on_page(page):
            first, script, *words = shlex.split(command)
            name = Path(script).stem
            assert first == "python" and script == f"recipes/{name}.py", command
            if name == "report":
                continue
            found = typed(name, *words, cwd=tmp_path)
            assert found.returncode == 0 and len(taken) == 1, (command, found.stderr)
            done.append((name, taken.pop()))
        return done

    return run


def report(root: Path, **options: Any) -> Path:
    path, problems = write_report(
        "zoo", root / "report.html", rankings=root / "ranking", evaluation=root / "evaluation", **options
    )
    assert problems == []
    return path


def test_every_command_runs_where_the_page_was_made(tmp_path: Path, run_all, monkeypatch) -> None:
    make_zoo(tmp_path)
    monkeypatch.chdir(tmp_path)
    done = run_all(report(tmp_path, command="python recipes/report.py zoo=zoo"))
    assert {name for name, _ in done} == {"train", "evaluate", "rank", "ground_truth"}
    for name, asked in done:
        if name in ("rank", "ground_truth"):
            assert set(members(asked["zoo"])) == {"byol+dsa-digits", "simclr-digits", HOSTILE}
            assert asked["data"] in ("digits", "without_truth", ["clipart", "digits"])
        given = asked.get("checkpoint") or []
        for one in given if isinstance(given, list) else [given]:
            assert ZooEntry.load(one).card["seed"] == 7
    assert any(asked.get("truth") == "runs/truth/truth.json" for _, asked in done)
    assert any(HOSTILE in str(asked.get("checkpoint")) for _, asked in done)


def test_options_with_brackets_and_spaces_arrive_as_they_were(tmp_path: Path, run_all, monkeypatch) -> None:
    make_entry(tmp_path / "a zoo" / "one-digits", 0.5)
    card = json.loads((tmp_path / "a zoo" / "one-digits" / "card.json").read_text())
    card["config"]["data"]["source"], card["method"] = "my pictures/of (all)", "byol+dsa"
    card["options"] = {"name": "byol+dsa", "views": {"scale": [0.2, 0.9]}, "dsa": {"nu": 0.25}}
    (tmp_path / "a zoo" / "one-digits" / "card.json").write_text(json.dumps(card))
    monkeypatch.chdir(tmp_path)
    path, _ = write_report(
        "a zoo", tmp_path / "report.html", rankings=[], command="python recipes/report.py 'zoo=a zoo'"
    )
    asked = next(asked for name, asked in run_all(path) if name == "train")
    assert asked["data"]["source"] == "my pictures/of (all)"
    assert asked["method"]["views"]["scale"] == [0.2, 0.9] and asked["method"]["dsa"]["nu"] == 0.25


def test_a_ranking_with_models_from_elsewhere_names_those_that_can_be_opened(
    tmp_path: Path, run_all, monkeypatch
) -> None:
    make_zoo(tmp_path)
    path = tmp_path / "ranking" / "digits.json"
    names = ("byol+dsa-digits", "efficientnet_lite0", "of-another-zoo-e9")
    metrics = ("ped(lam=0.3)+logme", "h_score")
    found = Ranking.from_json(path)
    made = {**found.made, "source": "clusters", "clusters": 50, "reference": "clipart"}
    replace(found, models=names, metrics=metrics, made=made).to_json(path)
    monkeypatch.chdir(tmp_path)
    page = report(tmp_path, command="python recipes/report.py zoo=zoo")
    ranked = [asked for name, asked in run_all(page) if name == "rank" and asked["data"] == "digits"]
    assert all(asked["zoo"] == ["zoo/byol+dsa-digits", "efficientnet_lite0"] for asked in ranked)
    assert ranked[0]["metrics"] == list(metrics)
    assert (ranked[0]["source"], ranked[0]["clusters"], ranked[0]["reference"]) == ("clusters", 50, "clipart")
    text = html.unescape(page.read_text())
    assert "The folders of of-another-zoo-e9 were not recorded" in text
    assert "efficientnet_lite0 †" in text and "of-another-zoo-e9 †" in text and "byol+dsa-digits †" not in text


def test_a_result_whose_folder_was_not_recorded_has_no_command(tmp_path: Path) -> None:
    result = Result.from_estimate(
        Estimate(0.5), protocol="knn", recipe="k=3", metric="top1", model="a", data="my_photos"
    )
    assert commands.evaluating(result, Path("runs/zoo/a")) == ""
    known = replace(result, details={"source": "path/to/my_photos"})
    told = "python recipes/evaluate.py checkpoint=runs/zoo/a data=path/to/my_photos 'protocols=[knn]'"
    assert commands.evaluating(known, Path("runs/zoo/a")) == told
    assert commands.evaluating(known, None) == "", "a model whose place is not known"
    assert "checkpoint=timm:resnet18" in commands.evaluating(replace(known, model="timm:resnet18"), None)


def test_networks_of_videos_are_judged_on_their_data(tmp_path: Path, run_all, monkeypatch) -> None:
    for name in ("byol-digits", "simclr-digits"):
        make_entry(tmp_path / "zoo" / name, 0.5)
    card = json.loads((tmp_path / "zoo" / "simclr-digits" / "card.json").read_text())
    card["backbone"]["frames"], card["data"]["source"] = 4, "video:films of mine"
    (tmp_path / "zoo" / "simclr-digits" / "card.json").write_text(json.dumps(card))
    (tmp_path / "ranking").mkdir()
    monkeypatch.chdir(tmp_path)
    done = run_all(report(tmp_path, command="python recipes/report.py zoo=zoo"))
    asked = {name: one for name, one in done if name in ("evaluate", "action_eval")}
    assert asked["evaluate"]["checkpoint"] == "zoo/byol-digits"
    assert asked["action_eval"]["checkpoint"] == "zoo/simclr-digits"
    assert asked["action_eval"]["data"] == "video:films of mine"


def test_evaluate_records_the_data_as_it_was_named(tmp_path: Path) -> None:
    make_entry(tmp_path / "zoo" / "one-digits", 0.5)
    how = {"out": tmp_path / "out", "cache": tmp_path / "cache"}
    evaluation.evaluate(tmp_path / "zoo" / "one-digits", "digits", protocols=["knn"], **how)
    (result,) = store.read(tmp_path / "zoo" / "one-digits", outcomes=False)
    assert result.details["source"] == "digits"
