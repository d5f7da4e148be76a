"""Finding the other view of an image: counted as by hand, on any folder, beside pixels and the network before."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from random_entries import made
from torch import nn

import evaluation
from evaluation.datasets import Reading
from evaluation.judging import run as judging
from evaluation.judging.summary import evaluate_models
from evaluation.protocols.base import Subject, Task
from evaluation.protocols.view_retrieval import Options, measure, open, run, terminal
from evaluation.results.decisions import decide, deciding
from sslkit.data.sources.named import open_images
from sslkit.decision import UNLABELLED
from sslkit.errors import UserError
from sslkit.models.loading import load
from sslkit.runtime.context import Runtime


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    """Clip art in one folder, without labels."""
    (tmp_path / "photos").mkdir()
    images = open_images("clipart", split="train")
    for row in range(40):
        pixels = images.__getitems__([row])["images"][0].numpy()
        Image.fromarray(pixels.transpose(1, 2, 0)).save(tmp_path / "photos" / f"{row:02d}.png")
    return tmp_path / "photos"


def network(size: int = 16) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return load(nn.Sequential(nn.Flatten(), nn.Linear(3 * size * size, 30)), image_size=size)


def test_the_value_is_the_share_of_what_is_found(flat: Path) -> None:
    subject = Subject(network(), flat)
    [result] = run(open(subject, Options()), Options(), Runtime())
    assert (result.metric, result.n, result.outcomes.dtype) == ("recall_at_1", 40, bool)
    assert result.value == result.outcomes.mean() and set(result.others) == {"alignment", "uniformity", "lidar"}
    assert all(low < number.value < high for number in result.others.values() for low, high in [number.interval])
    assert subject.with_notes(result).details["notes"] == "no image has a label: all are measured"
    assert evaluation.view_retrieval(network(), flat).value == result.value


def test_all_networks_and_pixels_see_the_same_views(flat: Path) -> None:
    models = [network(16), network(24), load("pixels")]
    task = terminal.agreed(models, Task("view_retrieval", flat, Options()))
    assert task.options.view_size == 24
    split = Subject(models[0], flat).open_unlabelled("test")
    results = [measure(model, split, task.options, Runtime()) for model in models]
    assert len({result.paired_on for result in results}) == 1
    decision, tests = decide(results)
    assert {test.a for test in tests} | {test.b for test in tests} >= {"pixels"} and not decision.decides
    other = measure(models[0], split, Options(view_size=16), Runtime())
    assert other.paired_on != results[0].paired_on, "views of other sizes are no pairs"


def test_evaluate_takes_it_for_a_folder_without_labels(
    flat: Path, tmp_path: Path, capsys: pytest.CaptureFixture
) -> None:
    how = {"out": tmp_path / "out", "cache": None, "progress": False}
    evaluate_models(checkpoint=made(tmp_path, "a", "digits"), zoo=None, data=str(flat), protocols=None, **how)
    said = " ".join(capsys.readouterr().out.split())
    assert "view_retrieval on" in said and "no image has a label: all are measured" in said and "fifth" not in said
    assert UNLABELLED in said and ": take " not in said
    pairs = judging.list_pairs([str(flat), "digits"], None)
    assert pairs == [(str(flat), "view_retrieval"), *(("digits", name) for name in judging.DEFAULT)]


def test_a_protocol_of_labels_says_which_need_none(flat: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="the protocols view_retrieval and lidar need none"):
        evaluation.evaluate("random:narrow_resnet", flat, ["linear"], out=tmp_path, image_size=16)


def test_a_measure_of_labels_decides_before_it() -> None:
    compared = [("a", "lidar"), ("a", "view_retrieval"), ("a", "few_shot"), ("b", "lidar"), ("b", "view_retrieval")]
    assert deciding(compared) == {("a", "few_shot"), ("b", "view_retrieval")}


def test_images_that_cannot_be_read_are_left_out(flat: Path) -> None:
    (flat / "07.png").write_bytes(b"no image")
    subject = Subject(network(), flat, Reading(on_error="skip"))
    [result] = run(open(subject, Options()), Options(), Runtime())
    assert result.n == 39 and [Path(name).name for name in result.details["unreadable"]] == ["07.png"]


def test_groups_widen_the_interval() -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 3, 16, 16), dtype=np.uint8)
    split = evaluation.open_split((pixels, np.arange(40) % 2), "train")
    grouped = Subject(network(), None, shared={}).once(
        "grouped", lambda: split.__class__(**{**vars(split), "groups": np.arange(40) // 10})
    )
    one, many = (measure(network(), each, Options(), Runtime()) for each in (split, grouped))
    assert one.value == many.value and many.kind == "wilson over 4 groups of images"
