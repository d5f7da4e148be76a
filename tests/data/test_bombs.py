"""Small files that ask for much take little, in every source: they are named, and the other images are read."""

import io
import os
import resource
import tarfile
import threading
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from bombs import BOMBS, frames_of_gif, ome_of_others, pages_of_tiff
from PIL import Image

from sslkit.data.decode.budget import PAGES_IN_A_ROW
from sslkit.data.decode.sandbox import client, session
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError

PAGES = {"circle.tif": 3, "pages.tif": 20_000, "ome.tif": 5, "frames.gif": PAGES_IN_A_ROW}


def in_folder(files: dict[str, bytes], root: Path) -> str:
    for name, content in files.items():
        (root / name).write_bytes(content)
    return str(root)


def in_list(files: dict[str, bytes], root: Path) -> str:
    in_folder(files, root)
    (root / "list.txt").write_text("\n".join(files))
    return str(root / "list.txt")


def in_tar(files: dict[str, bytes], root: Path) -> str:
    with tarfile.open(root / "a.tar", "w") as tar:
        for name, content in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return f"shards:{root}/a.tar"


def in_zip(files: dict[str, bytes], root: Path) -> str:
    with zipfile.ZipFile(root / "a.zip", "w", zipfile.ZIP_DEFLATED) as out:
        for name, content in files.items():
            out.writestr(name, content)
    return f"shards:{root}/a.zip"


def in_parquet(files: dict[str, bytes], root: Path) -> str:
    datasets = pytest.importorskip("datasets")
    images = [{"bytes": content, "path": name} for name, content in files.items()]
    features = datasets.Features({"image": datasets.Image()})
    datasets.Dataset.from_dict({"image": images}, features).save_to_disk(str(root / "table"))
    return f"hf:{root}/table"


SOURCES = (in_folder, in_list, in_tar, in_zip, in_parquet)


@pytest.mark.parametrize("pages", ["first", "all"])
@pytest.mark.parametrize("write", SOURCES)
def test_no_bomb_takes_memory_or_the_other_images(write: Callable, pages: str, tmp_path: Path) -> None:
    plain = io.BytesIO()
    Image.new("RGB", (24, 24), (10, 20, 30)).save(plain, "PNG")
    files = {"0.png": plain.getvalue()} | {name: make() for name, make in BOMBS.items()}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        images = open_images(write(files, tmp_path), image_size=8, channels=3, pages=pages, range=(0, 10), cache=None)
        want = len(files) if pages == "first" else len(files) + sum(PAGES.values()) - len(PAGES)
        assert len(images) == want
        batch = images.__getitems__([*range(min(12, want)), want - 1])
    assert batch["images"][0, :, 4, 4].tolist() == [10, 20, 30]
    refused = {name.rpartition("/")[2] for name in batch["bad"]}
    if pages == "first" and write is not in_parquet:  # which has no names
        assert refused == {"study.dcm", "strip.tif", "fragment.dcm"}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2**19, "KiB"


def test_a_line_tells_of_pages_that_are_left_out(tmp_path: Path) -> None:
    """Each frame of an animation needs all before it: reading all of them takes time with the square of the number."""
    source = in_folder({"0.gif": frames_of_gif(3000), "1.gif": frames_of_gif(2000)}, tmp_path)
    said = (
        r"0\.gif: the first 1,000 of its 3,000 pages are read, and as many of 1 other files: each needs all before it"
    )
    with pytest.warns(UserWarning, match=said):
        assert len(open_images(source, image_size=8, pages="all")) == 2000


def test_each_page_of_many_is_read_without_those_before_it(tmp_path: Path, monkeypatch) -> None:
    """The last of 20,000 takes as many steps as the first."""
    images = open_images(in_folder({"0.tif": pages_of_tiff(20_000)}, tmp_path), image_size=8, pages="all")
    asked, ask = [], client.Decoder.ask
    monkeypatch.setattr(
        client.Decoder, "ask", lambda self, do, *rest, **more: asked.append(do) or ask(self, do, *rest, **more)
    )
    assert images.__getitems__([19_999])["bad"] == [] and asked == ["open", "turn", "read"]
    assert images.places[19_999] > images.places[1] > 0


@pytest.mark.parametrize("kind", ["file", "pipe"])
def test_no_other_file_is_opened(kind: str, tmp_path: Path) -> None:
    """A description by the Open Microscopy Environment names files; of a pipe the reader would wait for ever."""
    other, read = tmp_path / "other", []
    if kind == "pipe":
        os.mkfifo(other)
    else:
        other.write_bytes(pages_of_tiff(5))
        os.utime(other, (0, 0))
    folder = tmp_path / "images"
    folder.mkdir()
    source = in_folder({"0.tif": ome_of_others(str(other))}, folder)
    reading = threading.Thread(target=lambda: read.append(open_images(source, channels=5, range=(0, 1), image_size=8)))
    reading.daemon = True
    reading.start()
    reading.join(60)
    assert not reading.is_alive() and len(read[0]) == 1
    assert os.stat(other).st_atime == 0 or kind == "pipe"


def test_what_broke_its_budget_is_decoded_once_a_run(tmp_path: Path, monkeypatch) -> None:
    """By whatever process: the second one asks nothing of a decoder."""
    source = in_folder({"0.tif": BOMBS["ome.tif"](), "1.tif": BOMBS["strip.tif"]()}, tmp_path)
    with pytest.raises(UserError, match="none of its 2 images can be read"):
        open_images(source, channels=5, image_size=8, range=(0, 1))
    lines = session._load_refused(client._state.idle[0].refused)[1]
    assert list(lines.values()) == ["it needed more than 256 MiB of memory"]
    asked = []
    monkeypatch.setattr(client.Decoder, "ask", lambda self, do, *rest, **more: asked.append(do))
    with pytest.raises(Exception, match="256 MiB"):
        session.Session(tmp_path / "0.tif", "tiff", {"by_pillow": False, "channels": 5, "max_pixels": None})
    assert asked == []
