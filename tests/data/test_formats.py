"""Every line of the table of formats in sslkit/README.md: how it is read, and what is said of it."""

import io
import re
import warnings
from pathlib import Path

import numpy as np
import pytest
from format_cases import CASES, Case
from image_files import flat, pillow

from sslkit.data.decode.opening import Opening, open_picture
from sslkit.data.decode.pixels import square
from sslkit.data.sources.named import open_images
from sslkit.errors import UserError

README = Path(__file__).parents[2] / "sslkit" / "README.md"


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_format_is_read_as_the_table_says(tmp_path, case: Case) -> None:
    (tmp_path / case.name).write_bytes(case.make())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", UserWarning)
        images = open_images(tmp_path, image_size=8, **case.options)
        found = images.__getitems__([0])
    assert found["bad"] == []
    said = [str(one.message) for one in caught]
    assert len(said) == bool(case.said) and all(re.search(case.said, text) for text in said), said
    assert images.channels == len(case.pixels)
    assert np.abs(found["images"][0, :, 4, 4].int().numpy() - case.pixels).max() <= case.near


@pytest.mark.parametrize("case", [case for case in CASES if not case.line.startswith("more than")], ids=str)
def test_a_format_is_read_from_memory_as_from_a_file(tmp_path, case: Case) -> None:
    """shards: and hf: sources give their files so. Pillow closes what it was given, before another package reads it."""
    content = case.make()
    (tmp_path / case.name).write_bytes(content)
    found = []
    for source in (tmp_path / case.name, io.BytesIO(content)):
        with open_picture(source, Opening(case.options.get("channels"))) as image:
            found.append(
                square(
                    image, 8, len(case.pixels), "squash", scale=(0.0, 65535.0), interpolation="bilinear", resize=None
                )[0]
            )
    assert np.array_equal(*found)


@pytest.mark.parametrize("case", [case for case in CASES if not case.line.startswith("more than")], ids=str)
@pytest.mark.parametrize("which", ["first", "all"])
def test_a_damaged_file_is_left_out_or_read(tmp_path, case: Case, which: str) -> None:
    """Truncated, and with bytes changed: never another error than of the file."""
    content, draw = case.make(), np.random.default_rng(0)
    (tmp_path / "0.png").write_bytes(pillow(flat("u1", 7), "PNG"))
    for number in range(6):
        broken = bytearray(content[: len(content) * (number + 1) // 4])
        for place in draw.integers(0, len(broken), 2 * number):
            broken[place] = draw.integers(256)
        (tmp_path / f"{number}-{case.name}").write_bytes(broken)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        images = open_images(tmp_path, image_size=8, channels=3, pages=which)
        assert images.__getitems__(list(range(len(images))))["images"].shape[1:] == (3, 8, 8)


def test_every_line_of_the_table_has_a_case() -> None:
    text = README.read_text(encoding="utf-8").partition("## Formats of images")[2].partition("\n## ")[0]
    lines = [line.split("|")[1].strip() for line in text.splitlines() if line.startswith("|")][2:]
    assert lines == list(dict.fromkeys(case.line for case in CASES))


@pytest.mark.parametrize(
    ("name", "package", "message"),
    [
        ("a.tif", "tifffile", r'such a TIFF, .* needs the package tifffile: pip install "sslkit\[tiff\]"'),
        ("a.dcm", "pydicom", r'reading DICOM needs the package pydicom: pip install "sslkit\[dicom\]"'),
        ("a.heic", "pillow_heif", r'reading HEIC needs the package pillow-heif: pip install "sslkit\[heif\]"'),
    ],
)
def test_a_package_that_is_missing_is_named(
    tmp_path, tmp_path_factory, monkeypatch, new_decoders, name: str, package: str, message: str
) -> None:
    """Also in a folder of other images: none is left out for it."""
    contents = {
        "a.tif": b"II+\0\x08\0\0\0" + bytes(64),
        "a.dcm": bytes(128) + b"DICM" + bytes(64),
        "a.heic": b"\0\0\0\x18ftypheic" + bytes(64),
    }
    (tmp_path / name).write_bytes(contents[name])
    (tmp_path / "0.png").write_bytes(pillow(flat("u1", 7), "PNG"))
    without = tmp_path_factory.mktemp("without")
    (without / f"{package}.py").write_text("raise ImportError")
    monkeypatch.syspath_prepend(without)
    with pytest.raises(UserError, match=message):
        open_images(tmp_path, image_size=8)
