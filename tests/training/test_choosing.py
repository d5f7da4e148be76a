"""The weights that a run keeps: of the best epoch, between the start and the end, and when a run stops."""

from pathlib import Path

import numpy as np
import pytest
import safetensors.torch
import timm
import torch

import sslkit
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError
from sslkit.training import choosing, monitor
from sslkit.training.choosing import SHARES

NAME = "resnet10t"


@pytest.fixture(scope="module")
def weights(tmp_path_factory) -> str:
    path = tmp_path_factory.mktemp("weights") / "net.safetensors"
    torch.manual_seed(1)
    safetensors.torch.save_file(timm.create_model(NAME).state_dict(), path)
    return f"timm:{NAME}:{path}"


@pytest.fixture(scope="module")
def many(tmp_path_factory) -> str:
    """64 training and 120 test images with labels."""
    arrays = {}
    for split, n in (("train", 64), ("test", 120)):
        batch = open_images("fashion_mnist", split=split).__getitems__(list(range(n)))
        arrays |= {f"x_{split}": batch["images"][:, 0].numpy(), f"y_{split}": batch["label"].numpy()}
    path = tmp_path_factory.mktemp("many") / "many.npz"
    np.savez(path, **arrays)
    return str(path)


@pytest.fixture
def begun(small_run, many, weights) -> dict:
    more = {"method": "simclr", "epochs": 1, "optimizer": {"lr": 1e-3}, "init": weights}
    return {**small_run, **more, "data": {"source": many, "channels": 3}}


def test_the_share_is_chosen_on_images_apart_and_told(begun, capsys) -> None:
    entry = sslkit.pretrain(begun)
    about, said = entry.card["interpolation"], " ".join(capsys.readouterr().out.split())
    tried, anew = ({f"{share:g}{kind}" for share in SHARES} for kind in ("", " anew"))
    assert set(about["scores"]) - anew == {"0", "1", *tried} and about["images"] == 60
    best = max((score, -float(share.split()[0])) for share, score in about["scores"].items() if share != "0")
    assert about["share"] == -best[1], "the best score, of equal ones the nearest to the start"
    assert about["over_end"]["mean"] == pytest.approx(best[0] - about["scores"]["1"])
    assert about["over_start"]["low"] <= about["over_start"]["mean"] == pytest.approx(best[0] - about["scores"]["0"])
    assert entry.card["after"]["n"] == 60, "the results are told on the others"
    assert "the best share of the training's weights and the start's by 60 held-out images" in said
    assert said.index("before 3-NN") < said.index("epoch 1/1") and "points on its start" in said
    assert f"weights: {about['share']:g} of the training's" in said
    gain = entry.card["gains"]["knn"]
    assert gain["mean"] == pytest.approx(entry.card["after"]["knn"] - entry.card["before"]["knn"])
    assert f"after less before, on the same images: kNN {100 * gain['mean']:+.1f} points" in said


def test_a_share_that_is_given_is_the_mean_of_both_and_the_end_is_kept(begun, weights) -> None:
    begun |= {"tune": "all+statistics"}
    half = sslkit.pretrain(begun, interpolate=0.5, name="half")
    whole = sslkit.pretrain(begun, interpolate=1, name="whole")
    end = sslkit.ZooEntry.load(half.folder / "checkpoints" / "half-end")
    assert half.card["interpolation"] == {"share": 0.5} and "interpolation" not in whole.card
    assert half.card["after"]["n"] == whole.card["after"]["n"] == 120, "nothing is chosen, no image is taken"
    first = safetensors.torch.load_file(weights.split(":")[2])
    ours, last = half.state_dict(), end.state_dict()
    assert all(torch.equal(value, last[name]) for name, value in whole.state_dict().items())
    for name, value in ours.items():
        if "running_" not in name and value.is_floating_point():
            assert torch.allclose(value, (first[name] + last[name]) / 2, atol=1e-7), name
    statistics = [name for name in ours if "running_" in name]
    assert statistics and not any(torch.equal(ours[name], last[name]) for name in statistics), "made anew"
    images = open_images(begun["data"]["source"], channels=3)
    again = sslkit.zoo.interpolate(weights, end, 0.5, half.folder.parent / "again", images=images)
    ours, theirs = half.state_dict(), again.state_dict()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours if "running_" not in name)
    assert "after" not in again.card and again.card["interpolation"]["share"] == 0.5
    sslkit.load(str(again.folder))


def test_updates_of_lora_are_merged_before_a_share_is_taken(begun, weights) -> None:
    begun |= {"tune": "lora", "optimizer": {"lr": 0.1}}
    half = sslkit.pretrain(begun, interpolate=0.5, name="half")
    end = sslkit.ZooEntry.load(half.folder / "checkpoints" / "half-end").state_dict()
    first = safetensors.torch.load_file(weights.split(":")[2])
    moved = {name for name, value in end.items() if not torch.equal(value, first[name])}
    assert moved and all(name.endswith("downsample.1.weight") for name in moved)
    middle = half.state_dict()
    assert all(torch.allclose(middle[name], (first[name] + end[name]) / 2, atol=1e-6) for name in moved)


def test_frozen_statistics_stay(begun, weights) -> None:
    entry = sslkit.pretrain(begun, interpolate=0.5)
    first = safetensors.torch.load_file(weights.split(":")[2])
    assert all(torch.equal(value, first[name]) for name, value in entry.state_dict().items() if "running_" in name)


def test_the_best_epoch_is_kept_and_a_run_without_gain_stops(small_run, many, monkeypatch, capsys) -> None:
    scores = iter([0.3, 0.5, 0.4, 0.45, 0.9])
    monkeypatch.setattr(monitor, "usefulness", lambda right: np.full(4, next(scores)))
    kept = {}
    compare = choosing.Best._compare

    def look(self, loop, score) -> None:
        compare(self, loop, score)
        kept[loop.epoch + 1] = choosing.weights_of(loop.module.method)

    monkeypatch.setattr(choosing.Best, "_compare", look)
    config = {**small_run, "method": "simclr", "epochs": 5, "data": {"source": many}}
    entry = sslkit.pretrain(config, keep="best", stop=2)
    said = " ".join(capsys.readouterr().out.split())
    assert entry.card["epochs"] == 2 and entry.card["kept"] == {"epoch": 2, "of": 4, "score": 0.5, "images": 4}
    assert "stop no gain in 2 evaluations since epoch 2" in said and "weights of epoch 2 of 4, the best" in said
    assert sorted(kept) == [1, 2, 3, 4], "the run has ended early"
    ours = entry.state_dict()
    assert all(torch.equal(ours[name], value) for name, value in kept[2].items())
    assert not all(torch.equal(ours[name], value) for name, value in kept[4].items())
    assert not (entry.folder / choosing.BEST).exists()


def test_a_stopped_run_goes_on_to_the_same_weights(small_run, many, monkeypatch) -> None:
    scores = {1: 0.5, 2: 0.4, 3: 0.3}
    config = {**small_run, "method": "simclr", "epochs": 3, "data": {"source": many}, "keep": "best"}

    def at(loop: object) -> None:
        monkeypatch.setattr(monitor, "usefulness", lambda right: np.full(4, scores[loop.epoch + 1]))

    begin = monitor.Monitor.begin
    monkeypatch.setattr(monitor.Monitor, "begin", lambda self, loop: (at(loop), begin(self, loop))[1])
    whole = sslkit.pretrain(config, name="whole")
    close = monitor.History.close_epoch

    def stop(self, loop) -> None:
        close(self, loop)
        if loop.epoch == 1:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(monitor.History, "close_epoch", stop)
        with pytest.raises(KeyboardInterrupt):
            sslkit.pretrain(config, name="parted")
    parted = sslkit.pretrain(config, name="parted", resume=True)
    assert whole.card["epochs"] == parted.card["epochs"] == 1
    assert all(torch.equal(value, parted.state_dict()[name]) for name, value in whole.state_dict().items())


def test_without_labels_other_views_choose_the_epoch(small_run, tmp_path: Path) -> None:
    batch = open_images("fashion_mnist", split="train").__getitems__(list(range(64)))
    np.savez(tmp_path / "bare.npz", x_train=batch["images"][:, 0].numpy())
    bare = {**small_run, "method": "simclr", "data": {"source": str(tmp_path / "bare.npz")}}
    entry = sslkit.pretrain(bare, keep="best")
    assert entry.card["kept"]["images"] == 64 and entry.card["gains"].keys() == {"found"}
    rows = (entry.folder / "metrics.csv").read_text()
    assert "found" in rows.partition("\n")[0]


def test_what_cannot_be_chosen_is_one_line_before_compute(small_run, many, tmp_path: Path, weights) -> None:
    few = open_images("fashion_mnist", split="train").__getitems__(list(range(16)))["images"][:, 0].numpy()
    np.savez(tmp_path / "few.npz", x_train=few)
    with pytest.raises(UserError, match="keep=best: weights are compared on held-out images with labels"):
        sslkit.pretrain({**small_run, "batch_size": 8, "data": {"source": str(tmp_path / "few.npz")}}, keep="best")
    with pytest.raises(UserError, match=r"interpolate=0\.5 is between the weights of init= and the trained ones"):
        sslkit.pretrain({**small_run, "data": {"source": many}}, interpolate=0.5)
    assert not Path(small_run["out"]).exists()


def test_a_start_that_has_vanished_is_named_at_resume(begun, weights, tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "gone.safetensors"
    path.write_bytes(Path(weights.split(":")[2]).read_bytes())
    config = {**begun, "init": f"timm:{NAME}:{path}", "name": "gone"}

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(monitor.History, "close_epoch", stop)
        with pytest.raises(KeyboardInterrupt):
            sslkit.pretrain(config)
    path.unlink()
    with pytest.raises(UserError, match=r"gone\.safetensors"):
        sslkit.pretrain(config, resume=True)
