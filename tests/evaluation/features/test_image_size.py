"""`image_size=` feeds every model at that size in every command; a size of one model's own is written in its word."""

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
import random_entries
import torch
from torch import nn

import evaluation
from evaluation.embedding.table import embed
from evaluation.features.using import use_it
from evaluation.features.zoo_members import load_zoo, members
from evaluation.ranking.choice.halving import successive_halving
from evaluation.ranking.truth.ground_truth import ground_truth
from sslkit import backbones
from sslkit.backbones.words import split_size
from sslkit.errors import UserError
from sslkit.models.loading import Loading, load

TUNING = {"lr": [1e-2, 1e-3], "seeds": [0], "batch_size": 8, "mirror": False, "progress": False, "device": "cpu"}
COMMANDS: dict[str, Callable] = {
    "evaluate": lambda entry, data, out: evaluation.evaluate(
        entry, data=data, protocols=["knn"], image_size=32, out=out, cache=None
    ),
    "rank": lambda entry, data, out: evaluation.rank(
        [entry], data, metrics=["logme"], image_size=32, bootstrap=0, cache=None
    ),
    "ground_truth": lambda entry, data, out: ground_truth(
        [entry], data, image_size=32, out=out, steps=2, extend=False, cache=None, **TUNING
    ),
    "choose": lambda entry, data, out: successive_halving(
        [entry, f"random:{entry}"], data, image_size=32, out=out, first=2, steps=2, cache=None, **TUNING
    ),
    "extract": lambda entry, data, out: evaluation.extract(entry, data, "test", image_size=32, cache=None),
    "embed": lambda entry, data, out: embed(entry, data, image_size=32, cache=None),
}


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return random_entries.made(tmp_path_factory.mktemp("zoo"), "small", "fashion_mnist")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> str:
    rng, arrays = np.random.default_rng(0), {}
    for split in ("train", "test"):
        arrays |= {f"x_{split}": rng.integers(0, 256, (40, 28, 28), np.uint8), f"y_{split}": np.arange(40) % 2}
    path = tmp_path_factory.mktemp("data") / "noise.npz"
    np.savez(path, **arrays)
    return str(path)


@pytest.fixture
def fed() -> Iterator[Counter]:
    """The number of images that networks were given, by their side."""
    sides: Counter = Counter()
    network = type(backbones.build("narrow_resnet", image_size=28, in_chans=1).net)

    def count(module: nn.Module, inputs: tuple) -> None:
        if isinstance(module, network):
            sides[inputs[0].shape[-1]] += len(inputs[0])

    hook = torch.nn.modules.module.register_module_forward_pre_hook(count)
    yield sides
    hook.remove()


@pytest.mark.parametrize("command", COMMANDS)
def test_an_entry_is_fed_at_the_size_that_was_asked_for(
    command: str, entry: Path, data: str, tmp_path: Path, fed: Counter
) -> None:
    COMMANDS[command](str(entry), data, tmp_path)
    assert fed[32] >= 40 and fed[28] < 20, "an entry of 28 pixels; its network is tried on a few as it is opened"


def test_a_size_in_the_word_is_that_models_own_and_its_name_stays() -> None:
    zoo = ["random:narrow_resnet(image_size=16)", "random:narrow_vit"]
    models, failures = load_zoo(zoo, Loading(image_size=32))
    assert failures == [] and {name: one.image_size for name, one in models.items()} == {
        "random:narrow_resnet": 16,
        "random:narrow_vit": 32,
    }
    (line, _) = use_it(zoo[0], models["random:narrow_resnet"], 32)
    assert f"sslkit.load({zoo[0]!r})" in line


def test_a_size_of_an_entry_and_of_a_folder_of_entries(entry: Path) -> None:
    word = f"{entry}(image_size=36)"
    assert list(members([word])) == ["small"] and load(word).image_size == 36
    with pytest.raises(UserError, match="is a folder of entries, and the size is that of one model"):
        members([f"{entry.parent}(image_size=36)"])


def test_a_path_of_such_a_name_is_no_word(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a(image_size=64)").mkdir()
    assert split_size("a(image_size=64)") == ("a(image_size=64)", None)
    assert split_size("b(image_size=64)") == ("b", 64)


@pytest.mark.parametrize("size", ["x", "-3", "3.5", ""])
def test_a_size_that_is_no_whole_number_is_refused(size: str) -> None:
    with pytest.raises(UserError, match=r"image_size is in pixels, a whole number: NAME\(image_size=64\)"):
        load(f"random:narrow_resnet(image_size={size})")
