"""Source heads beside an entry: what is read is what was written, and belongs to the backbone beside it."""

import pickle
from pathlib import Path

import pytest
import safetensors.torch
import torch
from torch import nn

from sslkit import zoo
from sslkit.errors import UserError
from sslkit.layers.heads import UnitLength, mlp
from sslkit.zoo import heads
from sslkit.zoo.heads import Head

RECIPE = {"data": "digits", "made": "in a test"}


def projector() -> nn.Sequential:
    """A head of prototypes whose norm has seen something."""
    torch.manual_seed(0)
    layers = nn.Sequential(
        *mlp(6, 9, 5, layers=3, last_norm=True), nn.GELU(), UnitLength(), nn.Linear(5, 7, bias=False)
    )
    for _ in range(20):
        layers(3 * torch.randn(40, 6) + 1)
    return layers.eval()


@pytest.fixture
def entry(tmp_path: Path) -> zoo.ZooEntry:
    bare = zoo.save(tmp_path / "entry", {"weight": torch.ones(3)}, {"method": "swav"})
    return bare.keep_head(Head.from_layers("own", projector(), RECIPE))


def test_layers_come_back_and_the_card_has_the_recipe(entry: zoo.ZooEntry) -> None:
    x = torch.randn(30, 6)
    kept = zoo.ZooEntry.load(entry.folder)
    torch.testing.assert_close(kept.head("own")(x), projector()(x), rtol=1e-5, atol=1e-5)
    assert kept.card["source_heads"] == {"own": {"classes": 7, **RECIPE}} and kept.card["method"] == "swav"
    assert not any(value.requires_grad for value in kept.head("own").parameters())
    assert [type(layer).__name__ for layer in kept.head("own")].count("Linear") == 4  # norms are folded


def test_heads_of_equal_tensors_are_equal_files(entry: zoo.ZooEntry) -> None:
    """The library's order of two metadata is random."""
    written = {
        heads.path(entry.keep_head(Head.from_layers("own", projector(), RECIPE)).folder, "own").read_bytes()
        for _ in range(12)
    }
    assert len(written) == 1
    torch.testing.assert_close(
        safetensors.torch.load(written.pop()), Head.from_layers("own", projector(), RECIPE).state
    )


def test_another_head_is_kept_beside_the_first(entry: zoo.ZooEntry) -> None:
    more = entry.keep_head(Head.from_layers("labels", nn.Sequential(nn.Linear(6, 3)), RECIPE))
    assert sorted(more.card["source_heads"]) == ["labels", "own"] and more.card == zoo.ZooEntry.load(entry.folder).card
    assert more.head("labels")(torch.zeros(2, 6)).shape == (2, 3)


def test_the_head_of_another_backbone_is_refused(entry: zoo.ZooEntry) -> None:
    zoo.save(entry.folder, {"weight": torch.zeros(3)}, entry.card)
    with pytest.raises(UserError, match=r"own\.safetensors is the head of another backbone .*: train the entry again"):
        zoo.ZooEntry.load(entry.folder).head("own")


@pytest.mark.parametrize(
    ("metadata", "said"),
    [
        ({"layers": "[]"}, "its last layer is not linear"),
        ({"layers": '["linear", "exec", "linear"]'}, "exec"),
        ({"layers": '["linear", "linear"]'}, "shape"),
        ({"layers": "{"}, "is no JSON"),
        ({"layers": "7"}, "is no head that sslkit wrote"),
        ({}, "is no JSON"),
    ],
)
def test_other_files_are_refused_in_one_line(entry: zoo.ZooEntry, metadata: dict, said: str) -> None:
    state = {
        "0.weight": torch.ones(3, 6),
        "0.bias": torch.ones(3),
        "1.weight": torch.ones(4, 5),
        "1.bias": torch.ones(4),
    }
    digest = zoo.weights.sha256(entry.folder / zoo.WEIGHTS)
    heads.path(entry.folder, "own").write_bytes(safetensors.torch.save(state, {"backbone": digest, **metadata}))
    with pytest.raises(UserError) as error:
        entry.head("own")
    assert said in str(error.value) and "\n" not in str(error.value)


def test_pickles_halves_and_nan_are_refused(entry: zoo.ZooEntry) -> None:
    file = heads.path(entry.folder, "own")
    whole = file.read_bytes()
    for content in (pickle.dumps({"0.weight": 1}), whole[: len(whole) // 2], b""):
        file.write_bytes(content)
        with pytest.raises(UserError, match="is not a whole safetensors file"):
            entry.head("own")
    file.unlink()
    with pytest.raises(UserError, match="is not a whole safetensors file"):
        entry.head("own")
    broken = nn.Sequential(nn.Linear(6, 3))
    nn.init.constant_(broken[0].weight, float("nan"))
    with pytest.raises(UserError, match="NaN"):
        entry.keep_head(Head.from_layers("own", broken, RECIPE)).head("own")


def test_other_numbers_and_names_are_refused(entry: zoo.ZooEntry) -> None:
    digest = zoo.weights.sha256(entry.folder / zoo.WEIGHTS)
    for weight in (torch.ones(3, 6).half(), torch.ones(3, 6, dtype=torch.int64), torch.ones(3, 6, 2), torch.ones(3)):
        state = {"0.weight": weight, "0.bias": torch.ones(3)}
        metadata = {"backbone": digest, "layers": '["linear"]'}
        heads.path(entry.folder, "own").write_bytes(safetensors.torch.save(state, metadata))
        with pytest.raises(UserError, match="is no head that sslkit wrote"):
            entry.head("own")
    for name in ("../own", "a/b", "", "own.safetensors"):
        with pytest.raises(UserError, match="cannot be called"):
            entry.head(name)


def test_layers_that_cannot_be_kept() -> None:
    with pytest.raises(UserError, match="cannot hold a Dropout"):
        Head.from_layers("own", nn.Sequential(nn.Dropout(), nn.Linear(3, 2)), RECIPE)
    with pytest.raises(UserError, match="cannot hold a BatchNorm1d"):  # only after a Linear
        Head.from_layers("own", nn.Sequential(nn.BatchNorm1d(3), nn.Linear(3, 2)), RECIPE)
    with pytest.raises(UserError, match="must be a Linear"):
        Head.from_layers("own", nn.Sequential(nn.Linear(3, 2), nn.ReLU()), RECIPE)
