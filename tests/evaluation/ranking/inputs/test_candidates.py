"""Models of one ranking: the same images, or one error that says what differs."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from random_entries import made
from torch import nn

import evaluation
from evaluation.datasets import Reading
from evaluation.features import as_features
from evaluation.features.zoo_members import Members
from evaluation.ranking.inputs.candidates import MAX_IMAGES, Options, of_arrays, of_models, settle_images
from evaluation.ranking.inputs.references import open_reference
from sslkit import open_images, zoo
from sslkit.errors import UserError
from sslkit.models.loading import Loading
from sslkit.runtime.context import Runtime

X = np.random.default_rng(0).normal(size=(6, 3))
Y = np.array([0, 0, 1, 1, 2, 2])
SEVERAL = np.eye(6)[:, :2]


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        ((X, Y), (X[:4], Y[:4]), "6 images and 4"),
        ((X[:4], Y[:4]), (X, Y), "4 images and 6"),
        ((X[:4], SEVERAL[:4]), (X, SEVERAL), "4 images and 6"),
        ((X, Y), (X, SEVERAL), "classes and numbers"),
        ((X, SEVERAL), (X, Y), "classes and numbers"),
        ((X, Y), (X, Y[::-1].copy()), "other labels from row 0 on"),
        ((X, SEVERAL), (X, 1 - SEVERAL), "other labels from row 0 on"),
        ((X, SEVERAL), (X, np.eye(6)[:, :3]), r"numbers of shape \(6, 2\) and \(6, 3\)"),
        ((X, list("aabbcc")), (X, list("aabbdd")), "a class 'c' and 'd' in its place"),
        ((X, list("aabbcc")), (X, list("aabbbb")), "a class 'c' and None in its place"),
    ],
)
def test_other_images_are_refused(one: tuple, other: tuple, said: str) -> None:
    with pytest.raises(UserError, match=f"first and second were not given the same labels .*: {said}"):
        of_arrays({"first": one, "second": other})


def test_the_same_images_are_taken_and_errors_bear_the_models_name() -> None:
    assert len(of_arrays({"a": (X, Y), "b": (2 * X, Y.tolist())})) == 2
    assert len(of_arrays({"a": (X, SEVERAL), "b": (X[:, :2], SEVERAL)})) == 2
    with pytest.raises(UserError, match="b: features are NaN"):
        of_arrays({"a": (X, Y), "b": (X * np.nan, Y)})


def test_equal_labels_of_other_images_are_refused() -> None:
    """Two orders of one pool, sorted by class, have the same labels."""
    first = replace(as_features((X, Y)), data="pets", ids=np.array(list("abcdef")))
    second = replace(first, ids=np.array(list("abdcef")))
    assert len(of_arrays({"a": first, "b": replace(first, x=2 * first.x)})) == 2
    (grouped,) = of_arrays({"a": replace(first, groups=np.array([0, 0, 1, 2, 3, 3]))})
    (single,) = of_arrays({"a": replace(first, groups=np.arange(6))})
    assert "the 6 images are of 4 groups" in grouped.notes[0] and single.notes == ()
    with pytest.raises(UserError, match="a and b are features of other images, or in another order: row 2 is c and d"):
        of_arrays({"a": first, "b": second})


def of_the_usual(zoo: object, **how: object) -> Members:
    cache, split = how.pop("cache"), how.pop("split", "train")
    options = Options(max_images=how.pop("max_images"), split=split, reference=open_reference("card"))
    runtime = Runtime(device="cpu", cache=cache)
    return of_models(zoo, "digits", (), options, Loading(**how), Reading(cache=cache), runtime)


def test_the_usual_number_of_images_is_one_for_python_and_the_command() -> None:
    """`auto` is settled once: of data by name a number, of a benchmark or an open split all; a number stays."""
    assert Options().max_images == "auto" and settle_images(Options()).max_images == MAX_IMAGES
    assert settle_images(Options(), every=True).max_images is None
    for given in (60, None):
        assert settle_images(Options(max_images=given)).max_images is given
        assert settle_images(Options(max_images=given), every=True).max_images is given


def test_a_ranking_of_named_data_and_of_an_open_split(tmp_path: Path) -> None:
    how = {"image_size": 8, "bootstrap": 0, "cache": tmp_path, "progress": False}
    named = evaluation.rank(["random:narrow_resnet"], "digits", ["feature_dim"], **how)
    split = evaluation.open_split("digits", "train")
    opened = evaluation.rank(["random:narrow_resnet"], split, ["feature_dim"], **how)
    assert named.n == named.made["max_images"] == MAX_IMAGES
    assert opened.n == len(split) > MAX_IMAGES and opened.made["max_images"] is None


def test_channels_are_asked_of_the_model_too(tmp_path) -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    (found,) = of_the_usual({"net": net}, image_size=8, in_chans=1, max_images=20, cache=tmp_path).values()
    assert found.sample.x.shape == (20, 3)


def test_an_entry_keeps_its_size_beside_models_that_have_none(tmp_path) -> None:
    zoo_of_both = {"entry": made(tmp_path, "entry", "digits"), "net": "random:narrow_resnet"}
    found = of_the_usual(zoo_of_both, image_size=32, max_images=20, cache=None)
    assert {name: one.image_size for name, one in found.items()} == {"entry": 32, "net": 32}


def test_images_that_a_network_saw_in_its_pretraining_are_a_note(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    digits = open_images("digits", split="train")
    about = {"source": "digits", "images": len(digits), "digest": digits.digest, "content": digits.content_digest}
    entry = zoo.ZooEntry.load(made(tmp_path / "zoo", "byol on digits", "digits"))
    zoo.update(entry, data=about, method="byol")
    made(tmp_path / "zoo", "byol on clothes", "fashion_mnist")
    seen, unseen = "the network saw these images in its pretraining, without their labels", "byol on clothes"
    found = of_the_usual(tmp_path / "zoo", max_images=40, cache=None)
    assert [seen in one.notes for one in found.values()] == [name != unseen for name in found]
    found = of_the_usual(tmp_path / "zoo", split="test", max_images=40, cache=None)
    assert not any(seen in one.notes for one in found.values())
    ranking = evaluation.rank(tmp_path / "zoo", "digits", ["logme"], max_images=40, bootstrap=0, cache=None)
    assert f"{seen} (byol on digits)" in ranking.notes
