"""rank.py as a person types it."""

import importlib
import inspect
import json
from pathlib import Path

import numpy as np
import pytest
import torch

import evaluation
from evaluation.ranking.published_ranking import rank_published
from evaluation.ranking.summary import rank_tasks
from sslkit import backbones, zoo
from sslkit.data.sources.named import open_images

ROOT = Path(__file__).parents[2]


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with three zoo entries, two with reference statistics, and a small data set of real digits."""
    torch.manual_seed(0)  # of some random networks a cluster of the images is empty
    for k, name in enumerate(("a", "b", "c")):
        body = backbones.build("narrow_resnet", image_size=8, in_chans=1)
        card = {
            "backbone": {"name": "narrow_resnet", "lines": body.recipe.lines, "image_size": 8, "in_chans": 1},
            "normalize": {"mean": [0.3], "std": [0.4]},
        }
        if k < 2:
            card["features"] = {"mean": [0.1] * body.width, "std": [0.5] * body.width}
        zoo.save(tmp_path / "zoo" / name, body.export(), card)
    images = open_images("digits", split="train")
    np.savez(tmp_path / "digits.npz", x_train=images.pixels[:300, 0], y_train=images.labels[:300])
    (tmp_path / "truth.json").write_text(json.dumps({"digits.npz": {"a": 0.9, "b": 0.8, "c": 0.7}}))
    return tmp_path


def test_a_zoo_is_ranked(place: Path, typed) -> None:
    words = ["zoo=zoo", "data=digits.npz", "metrics=[ped+logme,leep]", "max_images=100", "bootstrap=20"]
    words += ["image_size=16"]  # of models that are no entries: here there is none
    done = typed("rank", *words, "truth=truth.json", cwd=place)
    assert done.returncode == 0, done.stderr
    for said in (
        "digits.npz: 100 images",
        "% to be the best",
        "weighted tau",
        "no reference statistics",
        "(c)",
        "decision  ",
        "next      python recipes/choose.py zoo=zoo data=digits.npz image_size=16",
    ):
        assert said in done.stdout, done.stdout
    found = json.loads((place / "runs" / "ranking" / "digits.json").read_text())
    assert found["models"] == ["a", "b", "c"] and found["truth"] == [0.9, 0.8, 0.7]
    assert found["details"]["ped+logme"]["a"]["steps"] >= 0 and found["scores"][0][1] is None
    for name in ("digits.png", "digits-agreement.png"):
        assert (place / "runs" / "ranking" / name).read_bytes()[:4] == b"\x89PNG"


def test_the_heads_of_leep_and_the_reference_of_ped_are_chosen(place: Path, typed) -> None:
    images = open_images("digits", split="train")
    np.savez(place / "others.npz", x_train=images.pixels[300:600, 0], y_train=images.labels[300:600])
    for name in ("a", "b"):  # pretrained on other digits; the card of c does not say
        zoo.update(zoo.ZooEntry.load(place / "zoo" / name), data={"source": "others.npz", "images": 300})
    words = ["zoo=zoo", "data=digits.npz", "max_images=100", "bootstrap=0", "pictures=false"]
    done = typed("rank", *words, "metrics=[leep,nce,ped+logme]", "reference=digits", cwd=place)
    assert done.returncode == 0, done.stderr
    said = " ".join(done.stdout.split())
    for expected in (
        "source head of a: labels of 300 images of others, fitted once",
        "source head 10 labels of others.npz: a linear classifier fitted to 300 of its images (a, b)",
        "its card does not name its pretraining data, to fit a head on: source=none (c)",
        "reference=runs/ranking/ped-reference.npz takes them",
    ):
        assert expected in said, done.stdout
    found = json.loads((place / "runs" / "ranking" / "digits.json").read_text())
    assert found["sources"]["a"]["classes"] == 10 and found["made"]["reference"] == "digits"
    assert found["scores"][2][0] is None and None not in [row[2] for row in found["scores"]]
    again = typed("rank", *words, "metrics=[leep]", "source=clusters", "clusters=5", cwd=place)
    assert again.returncode == 0 and "clusters of others.npz" in again.stdout, again.stdout
    wrong = typed("rank", *words, "source=labelz", cwd=place)
    assert wrong.returncode == 2 and "labelz" in wrong.stderr and "Traceback" not in wrong.stderr


def test_a_detection_set_is_ranked_by_its_objects_and_next_is_detection(place: Path, typed) -> None:
    words = ["zoo=zoo", "data=boxes:clipart_boxes", "metrics=[knn]", "max_images=60", "bootstrap=0"]
    done = typed("rank", *words, cwd=place)
    assert done.returncode == 0, done.stderr
    assert "boxes:clipart_boxes: 60 images" in done.stdout and "recipes/detect.py" in done.stdout, done.stdout
    assert (place / "runs" / "ranking" / "clipart_boxes.json").is_file()
    wrong = typed("rank", "zoo=zoo", "data=boxes:nowhere", cwd=place)
    assert wrong.returncode == 2 and "there is no detection set 'nowhere'" in wrong.stderr, wrong.stderr


def test_a_segmentation_set_is_ranked_by_windows(place: Path, typed) -> None:
    words = ["zoo=zoo", "data=masks:clipart_boxes", "metrics=[knn]", "max_images=60", "bootstrap=0"]
    done = typed("rank", *words, cwd=place)
    assert done.returncode == 0, done.stderr
    assert "masks:clipart_boxes: 60 images" in done.stdout and "protocols=[linear_seg,knn_seg]" in done.stdout


def test_layers_are_compared_and_the_command_for_frozen_features_runs(place: Path, typed) -> None:
    done = typed("rank", "zoo=zoo", "data=digits.npz", "metrics=[knn]", "layers=knn", "bootstrap=0", cwd=place)
    assert done.returncode == 0, done.stderr
    assert "the best layer of each model" in done.stdout and "layer3" in done.stdout
    found = json.loads((place / "runs" / "ranking" / "digits-layers.json").read_text())
    assert sorted(found["models"]) == ["a", "b", "c"] and len(found["models"]["a"]["layers"]) == 6
    wrong = typed("rank", "zoo=zoo", "data=digits.npz", "layers=leep", cwd=place)
    assert wrong.returncode == 2 and "give knn or logme" in wrong.stderr, wrong.stderr


@pytest.mark.parametrize(
    ("config", "called", "expected"),
    [
        ({"max_images": "auto"}, "ranking.summary.rank_tasks", {"max_images": "auto"}),
        ({"max_images": 90, "benchmark": "itm"}, "ranking.published_ranking.rank_published", {"max_images": 90}),
        ({"download": True, "benchmark": "itm"}, "ranking.published_ranking.rank_published", {"download": True}),
    ],
)
def test_a_benchmark_has_a_function_of_its_own_and_may_download(
    config: dict, called: str, expected: dict, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    recipe = importlib.import_module("rank")
    given = {}
    monkeypatch.setattr(f"evaluation.{called}", lambda *_, **words: given.update(words))
    recipe.main({"benchmark": None, "checkpoints": "checkpoints", "download": False, "max_images": "auto"} | config)
    assert expected.items() <= given.items()


def test_defaults_are_those_of_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "recipes"))
    settings = importlib.import_module("rank").SETTINGS
    callers = (evaluation.rank, rank_tasks, rank_published)
    assert {inspect.signature(one).parameters["bootstrap"].default for one in callers} == {settings.bootstrap} == {100}
    assert inspect.signature(evaluation.rank).parameters["metrics"].default == settings.metrics


def test_help_names_every_metric(tmp_path: Path, typed) -> None:
    said = typed("rank", "--help", cwd=tmp_path).stdout
    assert "features are extracted on a GPU if there is one" in " ".join(said.split())
    for name in (*evaluation.metrics(), "bootstrap=100", "benchmark=null", "max_images=auto", "download=false"):
        assert name in said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["data=digits"], "name the models to rank"),
        (["zoo=zoo"], "name the task to rank for"),
        (["zoo=zoo", "data=digits.npz", "metrics=[logmee]"], "did you mean 'logme'"),
        (["zoo=zoo", "data=digits.npz", "metrics=[ped+logme+itm]"], "logme wraps no other metric"),
        (["zoo=nothere", "data=digits.npz"], "there is no model 'nothere'"),
        (["zoo=zoo", "data=digits.npz", "max_images=5"], "less than two for each class"),
        (["zoo=zoo", "data=digits.npz", "truth=no.json"], "cannot be read"),
        (["zoo=zoo", "data=digits.npz", "bootstraps=3"], "did you mean 'bootstrap'"),
        (["zoo=[zoo/a,zoo]", "data=digits.npz"], "two members of the zoo are called 'a'"),
        (["benchmark=pet"], "ped"),
        (["benchmark=ped"], "12 models are missing"),
        (["benchmark=itm"], "SUN397"),
        (["benchmark=itm", "zoo=zoo"], "leave out zoo="),
        (["zoo=zoo", "data=digits.npz", "download=true"], "download=true needs benchmark="),
        (["zoo=zoo", "data=digits.npz", 'metrics=["nleep(covariance=diagonal)"]'], "must be full or diag, got"),
    ],
)
def test_a_mistake_is_said_clearly_and_ends_with_2(words: list[str], said: str, place: Path, typed) -> None:
    done = typed("rank", *words, cwd=place)
    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr, done.stderr


def test_what_a_benchmark_lacks_is_a_line_each(typed, tmp_path: Path) -> None:
    done = typed("rank", "benchmark=ped", "checkpoints=no\nsuch", "root=none", cwd=tmp_path)
    first, models, *rest = done.stderr.splitlines()
    assert first == "error: the benchmark ped needs 12 models and 10 data sets."
    assert models.startswith("12 models are missing in ") and models.endswith("/no\\nsuch:")
    assert len(rest) == 23 and sum(line.startswith("  ") for line in rest) == 22 and done.stderr.count("\\n") == 1
