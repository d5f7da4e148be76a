"""The data of a run: named in every way, its classes compared, and Datasets of a Python program."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch.utils.data import Dataset, Subset

import sslkit
from sslkit.data.arrays import ArrayImages
from sslkit.data.images import Identity, ImageOptions
from sslkit.errors import UserError
from sslkit.runtime import processes
from sslkit.training.config import Config
from sslkit.training.data import Data, open_data

DIGITS = load_digits()


def write(folder: Path, kind: str, rows: range, name: str = "{}.png") -> None:
    """Digits of some rows in the class folder `kind`."""
    (folder / kind).mkdir(parents=True, exist_ok=True)
    for row in rows:
        Image.fromarray(np.round(DIGITS.images[row] * 255 / 16).astype(np.uint8)).save(folder / kind / name.format(row))


def opened(source: Any, tmp_path: Path, **options: Any) -> Data:
    small = {"batch_size": 4, "image_size": 8, "workers": 0}
    return open_data(
        Config.from_mapping({"data": {"source": source}, **small, **options, "out": str(tmp_path / "out"), "eval.k": 2})
    )


class Own(Dataset):
    """Digits 0 to 199 with their labels."""

    def __len__(self) -> int:
        return 200

    def __getitem__(self, row: int) -> tuple[np.ndarray, int]:
        return (DIGITS.images[row] / 16).astype(np.float32), int(DIGITS.target[row])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for place, kind in enumerate(("a", "b", "c")):
        write(tmp_path / "set" / "train", kind, range(20 * place, 20 * place + 12))
        write(tmp_path / "set" / "test", kind, range(20 * place + 12, 20 * place + 20))
    return tmp_path / "set"


def test_test_classes_that_training_never_saw_are_named_and_not_judged_by(folder: Path, tmp_path: Path, caplog) -> None:
    write(folder / "test", "d", range(100, 105))
    with caplog.at_level("WARNING", logger="sslkit.say"):
        data = opened(str(folder), tmp_path)
    assert (
        "set: train has no image of d, so that 5 held-out images of these classes are not used for evaluation"
        in caplog.text
    )
    assert len(data.query.rows) == 24 and data.query.images.labels.max() == 2


def test_a_test_part_of_other_classes_alone_is_refused(folder: Path, tmp_path: Path) -> None:
    for kind in ("a", "b", "c"):
        (folder / "test" / kind).rename(folder / "test" / f"n0{kind}")
    with pytest.raises(
        UserError, match="set: train and test have no class in common: train has a, b, c, test n0a, n0b, n0c"
    ):
        opened(str(folder), tmp_path)


def test_classes_that_read_alike_are_judged_as_one(folder: Path, tmp_path: Path) -> None:
    (folder / "test" / "a").rename(folder / "test" / "A")
    with pytest.warns(UserWarning, match="'a' and 'A' are one class"):
        data = opened(str(folder), tmp_path)
    assert len(data.query.rows) == 24 and np.bincount(data.query.images.labels).tolist() == [8, 8, 8]


def test_equal_classes_say_nothing(folder: Path, tmp_path: Path, caplog, recwarn) -> None:
    opened(str(folder), tmp_path)
    assert not caplog.records and not [one for one in recwarn if "set" in str(one.message)]


@pytest.mark.parametrize("way", ["several", "list", "text", "table", "pattern"])
def test_a_run_reads_data_named_in_every_way(way: str, folder: Path, tmp_path: Path) -> None:
    files = sorted(path.relative_to(folder) for path in folder.rglob("*.png"))
    (folder / "all.txt").write_text("".join(f"{path}\n" for path in files))
    rows = [f"{path},{path.parts[1]},{path.parts[0]}\n" for path in files]
    (folder / "all.csv").write_text("path,label,split\n" + "".join(rows))
    source = {
        "several": f"{folder / 'train'},{folder / 'test'}",
        "list": [str(folder / "train"), str(folder / "test")],
        "text": str(folder / "all.txt"),
        "table": str(folder / "all.csv"),
        "pattern": f"{folder}/**/*.png",
    }[way]
    data, plain = opened(source, tmp_path), opened(str(folder), tmp_path)
    assert (
        (len(data.train), len(data.query.rows)) == (36, 24) and data.held_out and data.train.classes == ["a", "b", "c"]
    )
    assert data.train.labels.tolist() == plain.train.labels.tolist()
    rows = list(range(36))
    assert torch.equal(data.train.__getitems__(rows)["images"], plain.train.__getitems__(rows)["images"])


def settings(tmp_path: Path, **more: Any) -> dict[str, Any]:
    return {
        "method": "simclr",
        "batch_size": 50,
        "image_size": 8,
        "workers": 0,
        "backbone": "narrow_resnet",
        "epochs": 1,
        "eval.k": 3,
        "eval.tsne": 0,
        "out": str(tmp_path),
        **more,
    }


def test_a_run_on_a_dataset_ends_and_is_resumed(tmp_path: Path, capsys) -> None:
    given = settings(tmp_path, data=Own())
    entry = sslkit.pretrain(given)
    assert entry.folder.name == "simclr-Own-narrow_resnet-e1-s0"
    assert entry.card["data"]["source"] == "dataset:Own" and entry.card["data"]["images"] == 200
    assert entry.card["after"]["n"] > 30 and "data=dataset" not in capsys.readouterr().out
    assert sslkit.pretrain({**given, "resume": True}).folder == entry.folder
    with pytest.raises(UserError, match="is finished, but the images have changed"):
        sslkit.pretrain({**given, "data": Subset(Own(), range(199)), "resume": True, "name": entry.folder.name})


@pytest.mark.parametrize("way", [{"data": None}, {"data.source": None}, {"data": {"source": None}}])
def test_a_dataset_is_named_as_any_data(way: dict[str, Any], tmp_path: Path) -> None:
    plain = {key: value for key, value in settings(tmp_path).items() if not key.startswith("data")}
    inner = {"batch_size": 50, "image_size": 8, "workers": 0}
    if isinstance(way.get("data"), dict):
        given = {**plain, "data": {"source": Own()}, **inner}
    else:
        given = {**plain, next(iter(way)): Own(), **inner}
    assert sslkit.pretrain(given).card["data"]["images"] == 200


def test_opened_images_are_data_too(tmp_path: Path) -> None:
    pixels = np.round(DIGITS.images[:200, None] * 255 / 16).astype(np.uint8)
    own = ArrayImages(pixels, Identity("mine", labels=DIGITS.target[:200], classes=list("0123456789")), ImageOptions())
    entry = sslkit.pretrain(settings(tmp_path, data=own))
    assert entry.card["data"]["source"] == "dataset:mine" and entry.card["data"]["images"] == 200
    assert sslkit.pretrain(settings(tmp_path, data=sslkit.open_images("digits"))).card["data"]["source"] == "digits"


def test_a_dataset_that_varies_trains_and_cannot_be_resumed(tmp_path: Path) -> None:
    class Varied(Own):
        def __getitem__(self, row: int) -> tuple[torch.Tensor, int]:
            image, label = super().__getitem__(row)
            return torch.rand(1) * torch.from_numpy(image), label

    given = settings(tmp_path, data=Varied())
    with pytest.warns(UserWarning, match="Varied: reading a row twice gives other pixels"):
        assert sslkit.pretrain(given) is not None
        with pytest.raises(UserError, match="resume=true, but reading a row of Varied twice gives other pixels"):
            sslkit.pretrain({**given, "resume": True})


def test_only_the_first_process_warns_of_the_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path / "photos", "0", range(8))
    (tmp_path / "photos" / "0" / "notes.xyz").write_text("about them")
    with pytest.warns(UserWarning, match="left out 1 other file: 0/notes.xyz"):
        opened(str(tmp_path / "photos"), tmp_path)
    monkeypatch.setattr(processes, "is_main", lambda: False)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(opened(str(tmp_path / "photos"), tmp_path).train) == 8
