"""Nulls beside models: raw pixels as features, and each network once with random weights."""

import pytest
import torch
from random_entries import made

import evaluation
import sslkit
from evaluation.features.nulls import check_nulls, nulls_of
from sslkit.backbones.words import is_null
from sslkit.errors import UserError
from sslkit.zoo import weights
from sslkit.zoo.entry import WEIGHTS, ZooEntry, save, update


def test_pixels_are_the_values_of_the_image() -> None:
    model = sslkit.load("pixels", image_size=8, in_chans=1)
    pixels = torch.arange(128, dtype=torch.uint8).reshape(2, 1, 8, 8)
    assert torch.equal(model(pixels), (pixels.flatten(1) / 255 - 0.5) / 0.5)
    assert sslkit.load("pixels").width == 768 and sslkit.load("pixels").multiply_adds == 0


def test_neighbours_of_pixels_are_those_of_the_digits_themselves() -> None:
    train, test = (
        evaluation.extract("pixels", "digits", split, image_size=8, in_chans=1) for split in ("train", "test")
    )
    assert train.x.shape[1] == 64 and evaluation.knn(train, test, k=5).value > 0.9


def test_each_network_is_once_beside_the_models(tmp_path) -> None:
    models = [sslkit.load(made(tmp_path, name, "digits", seed=seed)) for name, seed in (("a", 1), ("b", 2))]
    nulls = nulls_of(models, ("pixels", "untrained"))
    assert [null.name for null in nulls] == ["pixels", "random:a"] and all(is_null(n.name) for n in nulls)
    assert nulls[0].in_chans == models[0].in_chans and nulls[1].digest != models[0].digest
    assert nulls_of(models, ()) == [] and [null.name for null in nulls_of(models, ("pixels",))] == ["pixels"]


def test_what_was_asked_for_itself_is_no_second_time_beside(tmp_path) -> None:
    model = sslkit.load(made(tmp_path, "a", "digits", seed=1))
    control = sslkit.load(f"random:{tmp_path / 'a'}")
    assert nulls_of([model, control], ("untrained",)) == [] and nulls_of([control], ("pixels", "untrained")) == []
    module = sslkit.load(torch.nn.Sequential(torch.nn.Flatten()), image_size=8, in_chans=1)
    assert [null.name for null in nulls_of([module], ("pixels", "untrained"))] == ["pixels"], "it cannot be built anew"


def test_the_null_of_a_run_from_given_weights_is_its_start(tmp_path) -> None:
    first, second = (ZooEntry.load(made(tmp_path, name, "digits", seed=seed)) for name, seed in (("a", 1), ("b", 2)))
    digest = weights.sha256(first.folder / WEIGHTS)
    init = {"source": str(first.folder), "sha256": digest, "notes": []}
    entry = save(tmp_path / "c", second.state_dict(), {**second.card, "init": init})
    [null] = nulls_of([sslkit.load(entry)], ("untrained",))
    assert null.name == f"start:{first.folder}" and is_null(null.name)
    images = torch.rand(2, 1, 28, 28)
    assert torch.equal(null(images), sslkit.load(first)(images)) and null.mean == sslkit.load(entry).mean
    for other in (
        {**init, "sha256": "0" * 64},
        {**init, "source": str(tmp_path / "gone")},
        {**init, "source": "timm:resnet18"},
    ):
        changed = update(entry, init=other)
        assert [null.name for null in nulls_of([sslkit.load(changed)], ("untrained",))] == ["random:c"]


def test_another_word_is_refused() -> None:
    with pytest.raises(UserError, match="nulls=pixel: it is a list of pixels, untrained"):
        check_nulls(["pixel"])
