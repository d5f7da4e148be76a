"""Lists of a Python program as sources."""

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

import sslkit
from sslkit.data.sources.named import is_divisible, open_images
from sslkit.data.sources.objects import Files, as_source, is_several
from sslkit.errors import UserError


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    clipart = open_images("clipart", split="train")
    for row in range(8):
        path = tmp_path / "photos" / ("cat" if row % 2 else "dog") / f"{row}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(clipart.pixels[row].transpose(1, 2, 0)).save(path)
    return sorted((tmp_path / "photos").rglob("*.png"))


def test_a_list_of_files_is_read_as_their_folder(photos: list[Path]) -> None:
    images, folder = open_images(photos, image_size=48), open_images(photos[0].parents[1], image_size=48)
    assert images.classes == folder.classes == ["cat", "dog"] and np.array_equal(images.labels, folder.labels)
    assert images.content_digest == folder.content_digest and is_divisible(images) and images.source is None
    assert Files(photos)[0].size == (48, 48)


def test_a_list_is_one_source_or_several(photos: list[Path]) -> None:
    folders = [photos[0].parent, photos[-1].parent]
    assert isinstance(as_source(photos), Files) and as_source(folders) == f"{folders[0]},{folders[1]}"
    assert is_several(folders) and is_several(["digits", "clipart"])
    assert not is_several(photos) and not is_several("digits")
    assert not is_several((np.zeros((4, 8, 8)), np.zeros(4)))


def test_wrong_lists(photos: list[Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is an empty list"):
        open_images([])
    with pytest.raises(UserError, match=r"a list of files, such as .*, and of others, such as .*photos"):
        open_images([photos[0], tmp_path / "photos"])
    with pytest.raises(UserError, match=r"0\.png twice: give each file once"):
        open_images([*photos, next(path for path in photos if path.name == "0.png")])
    (tmp_path / "notes.md").write_text("none")
    with pytest.raises(UserError, match="a list of 1 file and none is an image"):
        open_images([tmp_path / "notes.md"])
    with pytest.raises(UserError, match="data is a list of int, not of paths"):
        open_images([1, 2])


def test_a_run_on_files(photos: list[Path], tmp_path: Path) -> None:
    how = {"batch_size": 4, "image_size": 32, "workers": 0, "eval.k": 2, "eval.tsne": 0}
    entry = sslkit.pretrain("simclr", data=photos, epochs=1, out=str(tmp_path / "zoo"), backbone="narrow_resnet", **how)
    assert entry.card["data"]["images"] == 8 and entry.card["data"]["source"] == "dataset:Files"
