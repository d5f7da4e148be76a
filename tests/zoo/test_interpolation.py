"""What lies between two entries, and what cannot be."""

from pathlib import Path

import pytest
import torch
from random_entries import CLOTHES, made

import sslkit
from sslkit import backbones, zoo
from sslkit.errors import UserError


def test_weights_lie_between_and_nothing_measured_is_taken_over(tmp_path: Path) -> None:
    start, end = (made(tmp_path, name, "digits", seed=seed) for seed, name in enumerate("ab"))
    zoo.update(zoo.ZooEntry.load(end), after={"knn": 0.5})
    new = zoo.interpolate(start, end, 0.25, tmp_path / "c")
    first, last, ours = (zoo.ZooEntry.load(folder).state_dict() for folder in (start, end, new.folder))
    for name, value in ours.items():
        if value.is_floating_point():
            assert torch.allclose(value, 0.75 * first[name] + 0.25 * last[name], atol=1e-7), name
    assert "after" not in new.card and new.card["interpolation"] == {
        "share": 0.25,
        "start": str(start),
        "end": str(end),
    }
    assert sslkit.load(str(new.folder)).width == 128


def test_statistics_are_made_anew_on_images(tmp_path: Path) -> None:
    start, end = (made(tmp_path, name, "digits", seed=seed) for seed, name in enumerate("ab"))
    entry = zoo.ZooEntry.load(end)
    state = entry.state_dict()
    moved = {name: value + 1 if "running_mean" in name else value for name, value in state.items()}
    zoo.save(end, moved, entry.card)
    with pytest.raises(UserError, match=r"other means and variances of batch normalisation: give images="):
        zoo.interpolate(start, end, 0.5, tmp_path / "c")
    new = zoo.interpolate(start, end, 0.5, tmp_path / "c", images=CLOTHES)
    name = next(name for name in state if "running_mean" in name)
    assert not torch.allclose(new.state_dict()[name], state[name] + 0.5, atol=1e-3)
    whole = zoo.interpolate(start, end, 1, tmp_path / "d")
    assert torch.equal(whole.state_dict()[name], moved[name]), "the end as it is"


def test_what_cannot_be_is_one_line(tmp_path: Path) -> None:
    start, end = made(tmp_path, "a", "digits"), made(tmp_path, "b", "digits", seed=1)
    other = backbones.build("narrow_vit", image_size=28, in_chans=1)
    entry = zoo.ZooEntry.load(end)
    about = {"name": "narrow_vit", "lines": other.recipe.lines, "image_size": 28, "in_chans": 1}
    vit = zoo.save(tmp_path / "vit", other.export(), {**entry.card, "backbone": about}).folder
    with pytest.raises(UserError, match=r"weights of two networks: \S+ is in the end alone"):
        zoo.interpolate(vit, end, 0.5, tmp_path / "c")
    with pytest.raises(UserError, match=r"share is 1\.5"):
        zoo.interpolate(start, end, 1.5, tmp_path / "c")
    with pytest.raises(UserError, match="is there already"):
        zoo.interpolate(start, end, 0.5, end)
