"""rank_tasks: what is opened and checked first, which truth belongs to which task, and names of files."""

import json
from pathlib import Path

import pytest
import torch
from photographs import write_jpegs
from torch import nn

from evaluation.ranking.summary import file_names, of_tasks, rank_tasks
from sslkit.errors import UserError


def nets() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    return {name: nn.Sequential(nn.Flatten(), nn.Linear(192, 4), nn.ReLU()) for name in ("a", "b", "c")}


@pytest.fixture
def how(tmp_path: Path) -> dict:
    small = {"image_size": 8, "max_images": 60, "bootstrap": 0}
    return {**small, "cache": tmp_path / "cache", "out": tmp_path / "out", "pictures": False}


def test_image_size_reaches_the_models_and_a_task_without_truth_is_said(
    how: dict, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    truth = tmp_path / "truth.json"
    truth.write_text(json.dumps({"digits": {"a": 3.0, "b": 2.0, "c": 1.0}}))
    digits, fashion = rank_tasks(nets(), ["digits", "fashion_mnist"], ["logme"], truth=truth, **how)
    assert digits.n == fashion.n == 60 and (digits.data, fashion.data) == ("digits", "fashion_mnist")
    assert digits.truth.tolist() == [3, 2, 1] and fashion.truth is None
    assert not any("truth" in note for note in digits.notes)
    assert any(note.endswith("has no accuracies of fashion_mnist") for note in fashion.notes)
    assert "has no accuracies of fashion_mnist" in capsys.readouterr().out
    assert sorted(path.name for path in how["out"].iterdir()) == ["digits.json", "fashion_mnist.json"]


def test_a_task_without_any_score_ends_in_an_error_when_all_is_written(how: dict) -> None:
    with pytest.raises(UserError, match="no model has a score by leep on digits: the notes say why"):
        rank_tasks(nets(), "digits", ["leep"], source="none", **how)
    assert (how["out"] / "digits.json").exists()


def test_an_unreadable_image_is_left_out_of_every_model(how: dict, tmp_path: Path) -> None:
    folder = tmp_path / "photos"
    for name in ("one", "two"):
        write_jpegs(folder / name, 15)
    for name in ("one", "two"):
        (folder / name / "damaged.jpg").write_bytes((folder / name / "00.jpg").read_bytes()[:300])
    (ranking,) = rank_tasks(nets(), [str(folder)], ["logme"], **{**how, "max_images": None})
    assert ranking.models == ("a", "b", "c") and not ranking.left_out
    assert 20 <= ranking.n <= 26  # four fifths of 32, less the unreadable ones
    with pytest.raises(UserError, match=r"damaged\.jpg"):
        rank_tasks(nets(), [str(folder)], ["logme"], **{**how, "max_images": None, "on_error": "raise"})


@pytest.mark.parametrize(
    ("data", "truth", "said"),
    [
        (["digits", "nosuch"], None, "nosuch"),
        (["digits", "digits"], None, "data names digits twice"),
        (["digits"], {"digit": {"a": 1.0, "b": 2.0, "c": 3.0}}, "no accuracies of digits: did you mean 'digit'"),
        (["digits"], {"digits": {"a": 1.0, "b": 2.0}}, "truth has no accuracy of c"),
        (["digits", "glyphs"], {"a": 1.0, "b": 2.0}, "truth has no accuracy of c"),
        (["digits"], {"digits": {"a": 1.0}, "b": 2.0}, "not of both kinds"),
    ],
)
def test_every_task_and_its_truth_is_checked_before_the_first_is_computed(
    data: list, truth: dict | None, said: str, how: dict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object, **__: object) -> None:
        raise AssertionError("features were extracted")

    monkeypatch.setattr("evaluation.features.extraction._extract", never)
    file = None
    if truth is not None:
        file = tmp_path / "truth.json"
        file.write_text(json.dumps(truth))
    with pytest.raises(UserError, match=said):
        rank_tasks(nets(), data, ["logme"], truth=file, **how)


def test_truth_by_models_is_that_of_every_task() -> None:
    assert of_tasks({"a": 1.0}, ["x", "y"], "file") == {"x": {"a": 1.0}, "y": {"a": 1.0}}
    assert of_tasks({"x": {"a": 1.0}, "z": {}}, ["x", "y"], "file") == {"x": {"a": 1.0}}


def test_plain_names_have_plain_files() -> None:
    tasks = [
        "digits",
        "my/glyphs.npz",
        "clean.csv",
        "my/list.txt",
        "path/to/images/",
        "sketch.v2",
        "torchvision:CIFAR10:/data/c",
        "cars:/data",
    ]
    names = ["digits", "glyphs", "clean", "list", "images", "sketch.v2", "CIFAR10", "cars"]
    assert file_names(tasks) == dict(zip(tasks, names, strict=True))
    assert file_names(["/"]) == {"/": "task"}


@pytest.mark.parametrize(
    "tasks",
    [
        ["a/images", "b/images"],
        ["a/images", "a-images", "b/images"],
        ["torchvision:CIFAR10:/data/c", "torchvision:CIFAR100:/data/c", "torchvision:CIFAR10:/data/d"],
        ["sketch.v1", "sketch.v2", "sketch"],
        ["digits", "digits.npz", "Digits"],
        ["digits", "digits-agreement"],
        ["a/x", "b/x", "a-x", "a:x"],
    ],
)
def test_no_task_overwrites_another(tasks: list[str]) -> None:
    files = file_names(tasks).values()
    pictures = [f"{file}{end}".casefold() for file in files for end in ("", "-agreement")]
    assert len(set(pictures)) == 2 * len(tasks)
    assert all("/" not in file and ":" not in file for file in files)


def test_the_word_of_a_model_with_a_size_of_its_own_is_recorded(how: dict) -> None:
    zoo = ["random:narrow_resnet(image_size=16)", "random:narrow_vit"]
    (ranking,) = rank_tasks(zoo, "digits", ["logme"], **how)
    assert ranking.models == ("random:narrow_resnet", "random:narrow_vit")
    assert ranking.made["words"] == {"random:narrow_resnet": zoo[0]} and ranking.made["image_size"] == 8
    assert any("random:narrow_resnet" in note and "16 px" in note for note in ranking.notes)
