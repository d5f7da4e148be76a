"""One run from images to a zoo entry: what it leaves behind, and what it refuses."""

import csv
import math
import resource
import shutil
import sys

import numpy as np
import pytest
import torch
from forks import exit_code
from PIL import Image

import sslkit
from sslkit.errors import UserError
from sslkit.regularizers.koleo import KoLeo
from sslkit.training.build import build_method
from sslkit.training.config import Config
from sslkit.training.data import open_data


def test_a_run_leaves_all_that_is_promised(finished) -> None:
    _, entry, said = finished
    names = {p.name for p in entry.folder.iterdir()}
    assert {
        "backbone.safetensors",
        "card.json",
        "config.yaml",
        "metrics.csv",
        "loss.png",
        "embedding.png",
        "views.png",
    } <= names
    assert any(n.startswith("events.out.tfevents") for n in names)
    assert (entry.folder / "checkpoints" / "last.ckpt").is_file()
    assert not list(entry.folder.rglob("*.part"))
    for word in (
        "nearest-neighbour",
        "quick probe",
        "before   pixels   pretrained",
        "inter-class",
        "load it:",
        "images/s",
    ):
        assert word in said
    assert "linear" not in said and "random weights" not in said

    rows = list(csv.DictReader((entry.folder / "metrics.csv").open()))
    assert [r["step"] for r in rows if r["loss"]] == ["1", "2", "3", "4", "5", "6"]
    judged = [r for r in rows if r["knn"]]
    assert len(judged) == 2 and all(0 <= float(r["knn"]) <= 1 and float(r["rankme"]) > 1 for r in judged)

    for picture in ("views.png", "loss.png", "embedding.png"):
        pixels = np.asarray(Image.open(entry.folder / picture).convert("L"))
        assert pixels.std() > 5, f"{picture} is blank"


def test_settings_are_keywords_a_mapping_or_the_method(small_run) -> None:
    given = dict(small_run)
    method, epochs = given.pop("method"), given.pop("epochs")
    for config, settings in ((given, {"method": method}), (method, given), (None, {"method": method, **given})):
        with pytest.raises(UserError, match="epochs must be a whole number, at least 1"):
            sslkit.pretrain(config, **settings, epochs=0)
    entry = sslkit.pretrain(method, backbone="narrow_resnet", epochs=epochs, **given)
    assert entry.card["backbone"]["name"] == "narrow_resnet"


@pytest.mark.parametrize(
    ("config", "settings", "said"),
    [
        ({"epochs": 1}, {"epochs": 2}, "epochs is given twice: 1 and 2"),
        (["method=simclr"], {}, r"settings are a mapping, such as .*; got \['method=simclr'\]"),
        (Config(), {"epochs": 2}, "epochs beside a Config"),
        ({"epochs": np.zeros((230, 3))}, {}, r"epochs must be .*, got ndarray of shape \(230, 3\)$"),
        ({"optimizer": [["lr", 0.1]]}, {}, "optimizer.name must be"),
    ],
)
def test_settings_of_a_wrong_kind_are_one_line(config, settings, said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        sslkit.pretrain(config, **settings)
    assert "\n" not in str(error.value)


def test_odd_steps_join_the_last_row_of_an_epoch(small_run) -> None:
    entry = sslkit.pretrain({**small_run, "trainer": {**small_run["trainer"], "log_every": 2}})
    rows = list(csv.DictReader((entry.folder / "metrics.csv").open()))
    assert [r["step"] for r in rows if r["loss"]] == ["3", "6"]


def test_the_card_says_how_to_load_and_its_statistics_are_the_features(finished, monkeypatch) -> None:
    monkeypatch.chdir(finished[1].folder)
    config, entry, _ = finished
    again = sslkit.ZooEntry.load(entry.folder)
    assert again.card == entry.card
    assert str(entry.folder.parent) not in again.card["load"], "a copy is loaded by the same lines"
    *lines, last = again.card["load"].splitlines()
    scope: dict = {}
    exec("\n".join(lines), scope)
    net = eval(last, scope)
    assert not net.training
    batch = sslkit.open_images(config["data"]["source"]).__getitems__(list(range(96)))
    mean, std = (torch.tensor(again.card["normalize"][k]).view(1, -1, 1, 1) for k in ("mean", "std"))
    size = again.card["backbone"]["image_size"]
    assert net.pretrained_cfg["input_size"] == (batch["images"].shape[1], size, size)
    assert all(list(net.pretrained_cfg[k]) == again.card["normalize"][k] for k in ("mean", "std"))
    with torch.no_grad():
        x = net((batch["images"].float() / 255 - mean) / std)
        torch.testing.assert_close(again.backbone()((batch["images"].float() / 255 - mean) / std), x)
    torch.testing.assert_close(x.mean(0), torch.tensor(again.card["features"]["mean"]), atol=1e-4, rtol=1e-3)
    torch.testing.assert_close(x.std(0), torch.tensor(again.card["features"]["std"]), atol=1e-4, rtol=1e-3)
    assert again.card["features"]["images"] == 96
    assert [e.folder for e in sslkit.zoo.open(entry.folder.parent)] == [entry.folder]


def brightness(images: torch.Tensor) -> torch.Tensor:
    return images.float().flatten(1)


def test_a_function_may_be_the_prior(small_run) -> None:
    run = {**small_run, "epochs": 1, "method": {"name": "byol+dsa", "dsa": {"prior": brightness, "eta": 3}}}
    assert sslkit.pretrain(run).card["options"]["dsa"]["prior"].endswith(":brightness")


def test_the_same_command_twice_keeps_the_first_run(finished, tmp_path) -> None:
    config, entry, _ = finished
    first = sslkit.ZooEntry.load(shutil.copytree(entry.folder, tmp_path / "zoo" / entry.folder.name))
    weights = (first.folder / "backbone.safetensors").read_bytes()
    second = sslkit.pretrain({**config, "out": str(tmp_path / "zoo"), "eval": {"k": 3, "tsne": 0}})
    assert second.folder != first.folder and second.folder.name == first.folder.name + "-2"
    assert (first.folder / "backbone.safetensors").read_bytes() == weights
    assert (second.folder / "backbone.safetensors").read_bytes() == weights, "a seed fixes everything"


def test_unlabelled_images_need_no_labels(small_run, small_npz, tmp_path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    with np.load(small_npz) as arrays:
        for i, image in enumerate(arrays["x_train"][:40]):
            Image.fromarray(image).save(folder / f"{i}.png")
    run = {
        **small_run,
        "epochs": 1,
        "batch_size": 16,
        "image_size": 28,
        "workers": 0,
        "data": {"source": str(folder)},
    }
    entry = sslkit.pretrain(run)
    assert entry.card["after"] == {} and entry.card["features"]["images"] == 40


def test_few_or_missing_labels(small_run, small_npz, tmp_path, capsys) -> None:
    with np.load(small_npz) as arrays:
        x, y = arrays["x_train"][:40], arrays["y_train"][:40].astype(np.int64)
    few = tmp_path / "few.npz"
    np.savez(few, x=x, y=np.where(np.arange(40) < 6, y, -1))
    run = {**small_run, "epochs": 1}
    entry = sslkit.pretrain({**run, "batch_size": 20, "data": {"source": str(few)}})
    assert entry.card["after"] == {} and "too few labelled images" in capsys.readouterr().out
    some = tmp_path / "some.npz"
    np.savez(some, x=x, y=np.where(np.arange(40) < 30, y % 2, -1))
    assert sslkit.pretrain({**run, "batch_size": 20, "data": {"source": str(some)}}).card["after"]["n"] == 6
    flat = tmp_path / "flat"  # labelled training folders beside test images without any
    for i, image in enumerate(x):
        (flat / "train" / "ab"[i % 2]).mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(flat / "train" / "ab"[i % 2] / f"{i}.png")
    (flat / "test").mkdir()
    Image.fromarray(x[0]).save(flat / "test" / "0.png")
    data = {"data": {"source": str(flat)}, "batch_size": 20, "image_size": 28, "workers": 0}
    assert sslkit.pretrain({**run, **data}).card["after"]["n"] == 8
    with pytest.raises(UserError, match=r"lower eval\.k"):
        sslkit.pretrain({**run, "batch_size": 20, "data": {"source": str(some)}, "eval": {"k": 30}})


def test_unreadable_images_are_counted_and_named(small_run, small_npz, tmp_path, capsys) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    with np.load(small_npz) as arrays:
        for i, image in enumerate(arrays["x_train"][:40]):
            Image.fromarray(image).save(folder / f"{i:02}.png")
    (folder / "07.png").write_bytes((folder / "07.png").read_bytes()[:60])
    (folder / "07.png").rename(folder / "\x1b[2J\nepoch 9  10-NN 99 %07.png")
    data = {"data": {"source": str(folder)}, "batch_size": 20, "image_size": 28, "workers": 0}
    entry = sslkit.pretrain({**small_run, "epochs": 1, **data})
    assert len(entry.card["unreadable"]) == 1 and entry.card["unreadable"][0].endswith("07.png")
    said = capsys.readouterr().out
    assert "\\x1b[2J\\nepoch" in said and "\x1b" not in said and "\nepoch 9" not in said
    with pytest.raises(UserError, match=r"07\.png"):
        sslkit.pretrain({**small_run, "epochs": 1, **data, "on_error": "raise"})


def test_unreadable_held_out_images_are_named(small_run, small_npz, tmp_path, capsys) -> None:
    with np.load(small_npz) as arrays:
        for split in ("train", "test"):
            for i in range(32):
                file = tmp_path / "pictures" / split / "ab"[i % 2] / f"{i:02}.png"
                file.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(arrays["x_train"][i]).save(file)
    damaged = tmp_path / "pictures" / "test" / "a" / "06.png"
    damaged.write_bytes(damaged.read_bytes()[:60])
    data = {"data": {"source": str(tmp_path / "pictures")}, "batch_size": 16, "image_size": 28, "workers": 0}
    entry = sslkit.pretrain({**small_run, "epochs": 1, **data})
    assert entry.card["unreadable"] == [str(damaged)] and entry.card["after"]["n"] == 31
    assert "1 unreadable image left out:" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"method": "byolo"}, "did you mean 'byol'"),
        ({"method": "byol+dsaa"}, "did you mean 'dsa'"),
        ({"method": {"name": "byol", "objective": {"momentun": 1}}}, "did you mean 'momentum'"),
        ({"method": {"name": "byol", "views": {"scal": 1}}}, "did you mean 'scale'"),
        ({"backbone": "resnet81"}, "did you mean"),
        ({"epoch": 3}, "did you mean 'epochs'"),
        ({"epochs": 0}, "epochs must be a whole number, at least 1"),
        ({"epochs": "many"}, "epochs must be a whole number"),
        ({"optimizer": {"name": "adan"}}, "optimizer.name must be adamw, sgd or lars"),
        ({"trainer": {"strategy": "dpp"}}, "trainer.strategy must be auto, ddp"),
        ({"precision": "bf17"}, "precision must be .*bf17"),
        ({"device": "gpuu"}, "device=gpuu is not known: .*cuda"),
        ({"device": "cpu", "trainer": {"devices": 3}}, "shared evenly by 3 processes"),
        ({"seed": -1}, "seed must be .*got -1"),
        ({"method": {"dsa": {}}}, "method needs a name"),
        ({"eval": {"tsne": 2}}, "too few for the picture"),
        ({"data": "no/such/place"}, "no/such/place"),
        ({"data": "fashion_mist"}, "did you mean 'fashion_mnist'"),
        ({"image_size": 1}, r"image_size must be .*at least 8 .*, got 1"),
        ({"eval": {"k": 100_000}}, r"eval\.max_images=.* must be at least eval\.k=100000"),
    ],
)
def test_bad_settings_are_refused_before_anything_is_written(small_run, change, said, tmp_path) -> None:
    with pytest.raises(UserError, match=said) as error:
        sslkit.pretrain({**small_run, **change})
    assert "\n" not in str(error.value)
    assert not (tmp_path / "zoo").exists()


def test_a_batch_larger_than_the_data_is_refused(small_run) -> None:
    with pytest.raises(UserError, match=r"96 images.*batch_size=128"):
        sslkit.pretrain({**small_run, "batch_size": 128})


def test_a_run_folder_that_cannot_be_made_is_refused(small_run, tmp_path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UserError, match=r"cannot make the run folder.*choose another with out="):
        sslkit.pretrain({**small_run, "out": str(tmp_path / "file" / "zoo")})


def test_a_loss_that_is_not_finite_stops_at_once_and_names_the_term(small_run, monkeypatch) -> None:
    monkeypatch.setattr(KoLeo, "terms", lambda self, e, images: {"koleo": e.z.sum() * math.inf})
    run = {**small_run, "method": "simclr+koleo"}
    with pytest.raises(UserError, match=r"not finite at epoch 0, step 0: koleo = "):
        sslkit.pretrain(run)


def test_a_collapsing_run_is_warned_of_with_its_reason(small_run, monkeypatch) -> None:
    spread = KoLeo.terms
    monkeypatch.setattr(KoLeo, "terms", lambda *given: {k: -500 * v for k, v in spread(*given).items()})
    run = {**small_run, "epochs": 1, "method": "byol+koleo"}
    run["optimizer"] = {"lr": 0.05, "warmup": 0.0}
    with pytest.warns(UserWarning, match="collapsing"):
        sslkit.pretrain({**run, "epochs": 4})


@pytest.mark.parametrize("optimizer", ["sgd", "lars"])
def test_other_optimisers_and_accumulation(small_run, optimizer) -> None:
    run = {**small_run, "epochs": 1, "optimizer": {"name": optimizer, "lr": 0.05}}
    entry = sslkit.pretrain({**run, "trainer": {**small_run["trainer"], "accumulate": 2}})
    rows = list(csv.DictReader((entry.folder / "metrics.csv").open()))
    assert rows[-1]["step"] == "2"  # three batches, two steps


def fill_the_disk(run: dict) -> None:
    sslkit.pretrain({**run, "epochs": 1, "name": "kept"})
    resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
    try:
        sslkit.pretrain({**run, "name": "full"})
    except UserError as error:
        print("refused:", error)
        sys.exit(7)


@pytest.mark.nightly
def test_a_full_disk_keeps_what_was_written(small_run, tmp_path) -> None:
    """The file-size limit stands in for a full disk: the checkpoint of the second run does not fit."""
    code, said = exit_code(log := tmp_path / "said", fill_the_disk, small_run), log.read_text()
    assert code == 7, said[-2000:]
    assert "refused: cannot write" in said and "last.ckpt" in said
    zoo = tmp_path / "zoo"
    assert sslkit.ZooEntry.load(zoo / "kept").backbone() is not None
    assert not list((zoo / "full").rglob("*.part")) and not (zoo / "full" / "card.json").exists()


def test_supervised_takes_the_classes_of_the_data_and_more_if_asked(small_run, small_npz) -> None:
    entry = sslkit.pretrain({**small_run, "method": "supervised", "epochs": 1})
    state = torch.load(entry.folder / "checkpoints" / "last.ckpt", weights_only=True)["module"]
    assert state["method.objective.classifier.weight"].shape[0] == 10
    assert entry.card["data"]["held_out"] is True
    few = {"name": "supervised", "objective": {"classes": 3}}
    with pytest.raises(UserError, match="classes=3"):
        sslkit.pretrain({**small_run, "method": few})


def test_supervised_does_not_learn_from_the_labels_that_judge_it(small_run, small_npz, tmp_path) -> None:
    arrays = dict(np.load(small_npz))
    data = tmp_path / "no-test-split.npz"
    np.savez(data, x=arrays["x_train"], y=arrays["y_train"])
    config = Config.from_mapping({**small_run, "method": "supervised", "batch_size": 32, "data": {"source": str(data)}})
    opened = open_data(config)
    build_method(config, opened)
    assert not opened.held_out and (opened.train.labels[opened.query.rows] == -1).all()
    assert (opened.train.labels[opened.bank.rows] >= 0).all() and (opened.query.images.labels >= 0).all()


def test_without_labels_supervised_is_refused(small_run, small_npz, tmp_path) -> None:
    data = tmp_path / "unlabelled.npz"
    np.savez(data, x=dict(np.load(small_npz))["x_train"])
    with pytest.raises(UserError, match="learns from labels"):
        sslkit.pretrain({**small_run, "method": "supervised", "batch_size": 32, "data": {"source": str(data)}})


def test_a_run_says_that_a_default_is_too_large(small_run, capsys) -> None:
    sslkit.pretrain({**small_run, "method": {"name": "swav", "objective": {"queue_size": 8}}, "epochs": 1})
    said = " ".join(capsys.readouterr().out.split())
    assert "prototypes=3,000 suits more than 96 images" in said and "experiment=swav" in said
    assert "queue_size=8 suits" not in said
