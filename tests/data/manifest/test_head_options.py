"""What the head of a manifest decides counts in every command, unless an option is given."""

import re
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from manifests import look, opened, rewrite_head, table, write_folder
from PIL import Image

import evaluation
import sslkit
from evaluation.datasets import Reading
from sslkit.data.decode import survey
from sslkit.data.manifest import head_options
from sslkit.data.manifest.head import head_of
from sslkit.errors import UserError

DEEP = 3000  # of 12 bits


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_folder(tmp_path / "set", deep=DEEP)


@pytest.fixture
def manifest(folder: Path) -> Path:
    look(folder)
    return folder.parent / "manifest.csv"


VALUES = [
    ("channels", 3),
    ("range", (0.0, 4095.0)),
    ("range", (-3.4028234663852886e38, 0.1)),
    ("range", (1e-07, 123456789.0)),
    ("range", None),
    ("opacity", False),
    ("opacity", None),
    ("fill", -2000.0),
    ("fill", "tagged"),
    ("fill", "auto"),
    ("pages", "all"),
    ("mirror", True),
    ("max_pixels", None),
    ("max_pixels", 10**9),
]


@pytest.mark.parametrize(("name", "value"), VALUES)
def test_a_word_of_the_head_gives_the_value_it_was_written_for(name: str, value: Any) -> None:
    written, equals, text = head_options.word(name, value).partition("=")
    assert (written, equals) == (name, "=") and head_options.parse(name, text) == value


def test_every_decision_stands_in_the_head_as_the_option_that_gives_it(manifest: Path) -> None:
    head = head_of(manifest, manifest.read_text(encoding="utf-8").splitlines())
    assert head.decisions == {
        "channels": 1,
        "range": (0.0, 4095.0),
        "opacity": None,
        "fill": "tagged",
        "pages": "first",
        "mirror": True,
        "max_pixels": None,
    }


GIVEN = [
    {"channels": 3},
    {"range": [0, 2000]},
    {"fill": 0},
    {"fill": "none"},
    {"range": [0, 2000], "fill": 7},
    {"max_pixels": 1000},
    {"mirror": False},
]


@pytest.mark.parametrize("given", GIVEN)
def test_what_was_given_to_look_counts_where_its_manifest_is_opened(folder: Path, given: dict[str, Any]) -> None:
    """By the splits, by the pixels of every row, and without a look at a sample."""
    look(folder, **given)
    reading = {name: value for name, value in given.items() if name != "mirror"}
    for split in ("train", "test"):
        before, after = opened(folder, split, **reading), opened(folder.parent / "manifest.csv", split)
        assert (after.channels, after.scale) == (before.channels, before.scale)
        assert after.options.max_pixels == before.options.max_pixels and after.mirror is given.get("mirror", True)
        assert (after.__getitems__([0, 1])["images"] == before.__getitems__([0, 1])["images"]).all()


def test_a_head_corrected_by_hand_counts_and_no_sample_is_read(manifest: Path, monkeypatch) -> None:
    words = {"range": "range=[0,900]", "channels": "channels=3", "fill": "fill=none", "size": "max_pixels=1000"}
    rewrite_head(manifest, words | {"mirror": "mirror=false"})
    monkeypatch.setattr(survey, "_measure_values", lambda *_, **__: pytest.fail("a sample was read"))
    for split in ("train", "test"):
        images = opened(manifest, split)
        assert (images.range, images.scale.fill, images.channels) == ((0.0, 900.0), "none", 3)
        assert images.options.max_pixels == 1000 and images.mirror is False and images.options.range is None
    again = look(manifest, out=str(manifest.with_name("again.csv")))
    assert {decision.word for decision in again.decisions} >= {*words.values(), "mirror=false"}


def test_an_emptied_cell_is_decided_anew(manifest: Path) -> None:
    rewrite_head(manifest, {"range": "", "fill": "", "mirror": ""})
    images = opened(manifest)
    assert images.range == (0.0, 4095.0) and images.mirror is None


def test_pages_of_files_are_read_by_the_head(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "set")
    frames = [Image.fromarray(np.full((8, 8, 3), 50 * n, np.uint8)) for n in range(3)]
    frames[0].save(folder / "train/a/film.tif", save_all=True, append_images=frames[1:])
    look(folder)
    assert len(opened(tmp_path / "manifest.csv")) == 9
    rewrite_head(tmp_path / "manifest.csv", {"pages": "pages=all"})
    assert len(opened(tmp_path / "manifest.csv")) == 11


@pytest.mark.parametrize(
    ("given", "written", "line"),
    [
        ({"range": [0, 100]}, {}, "its head says range=[0,4095], and range=[0,100] is given, which counts"),
        ({"range": "auto"}, {}, "its head says range=[0,4095], and range=auto is given, which counts"),
        ({"channels": 3}, {}, "its head says channels=1, and channels=3 is given, which counts"),
        ({"fill": "none"}, {}, "its head says fill=tagged, and fill=none is given, which counts"),
        ({"opacity": False}, {"opacity": "opacity=true"}, "its head says opacity=true, and opacity=false is given"),
        ({"max_pixels": 9}, {"size": "max_pixels=99999"}, "says max_pixels=99999, and max_pixels=9 is given"),
        ({"range": [0, 4095], "channels": 1}, {}, None),
        ({"max_pixels": 10**9}, {}, None),
    ],
)
def test_an_option_that_is_given_counts_and_a_line_names_both(
    manifest: Path, given: dict[str, Any], written: dict[str, str], line: str | None
) -> None:
    rewrite_head(manifest, written)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            images = sslkit.open_images(manifest, cache=None, **given)
        except UserError:
            assert given == {"max_pixels": 9}, "no image is so small"
        else:
            assert given.get("channels", 1) == images.channels
            assert images.range == {100: (0, 100), 4095: (0, 4095)}.get(given.get("range", [0])[-1], images.range)
    told = [str(warning.message) for warning in caught if "its head says" in str(warning.message)]
    assert [line in text and str(manifest) in text for text in told] == ([True] if line else [])


def test_mirroring_is_the_same_for_training_and_for_evaluation(manifest: Path, capsys) -> None:
    from sslkit.training import build
    from sslkit.training.config import Config
    from sslkit.training.data import open_data

    rewrite_head(manifest, {"mirror": "mirror=false"})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        split = evaluation.open_split(str(manifest), "test", image_size=8, cache=None)
        for mirror, is_mirrored in ((None, False), (True, True)):
            given = {"method": "simclr", "data": str(manifest), "batch_size": 4, "mirror": mirror, "eval.k": 2}
            asked = Config.from_mapping(given)
            assert ("method.views.flip" in build.choose(asked, open_data(asked))) is not is_mirrored
            assert Reading(mirror=mirror).mirrors(split) is is_mirrored
    assert "says mirror=false, and mirror=true is given, which counts" in capsys.readouterr().out


WRONG = [
    ({"range": "range=[900,0]"}, 6, "must be two numbers that rise"),
    ({"range": "range=wide"}, 6, "range must be a list"),
    ({"channels": "channels=0"}, 5, "channels must be a whole number, at least 1"),
    ({"channels": "channels=rgb"}, 5, "channels must be a whole number"),
    ({"opacity": "opacity=maybe"}, 7, "opacity must be true or false"),
    ({"fill": "fill=zero"}, 8, "fill must be a number, or auto, none or tagged"),
    ({"pages": "pages=second"}, 9, "pages must be first or all"),
    ({"mirror": "mirror=2"}, 10, "mirror must be true or false"),
    ({"size": "max_pixels=0"}, 11, "max_pixels must be a whole number, at least 1"),
    ({"size": "max_pixel=9"}, 11, "the head of a manifest has no option 'max_pixel': did you mean 'max_pixels'?"),
    ({"size": "on_error=raise"}, 11, "the head of a manifest has no option 'on_error'"),
]


@pytest.mark.parametrize(("words", "line", "message"), WRONG)
def test_an_impossible_value_ends_in_the_line_of_its_option(
    manifest: Path, words: dict[str, str], line: int, message: str
) -> None:
    rewrite_head(manifest, words)
    with pytest.raises(UserError, match=re.escape(f"manifest.csv, line {line}: ") + ".*" + re.escape(message)):
        opened(manifest)


def test_a_head_counts_for_its_own_images_alone(manifest: Path, tmp_path: Path) -> None:
    rewrite_head(manifest, {"range": "range=[0,900]"})
    other = write_folder(tmp_path / "more", deep=DEEP)
    with pytest.warns(UserWarning, match=r"manifest.csv: beside other images its head does not count"):
        images = sslkit.open_images(f"{manifest},{other}", cache=None)
    assert images.range == (0.0, 4095.0)


def test_decisions_of_a_sample_are_marked(folder: Path) -> None:
    manifest = look(folder, fill="none")
    sampled = {decision.subject for decision in manifest.decisions if decision.reason.startswith("by a sample: ")}
    assert sampled == {"channels", "range"}
    given = look(folder, channels=1, range=[0, 4095])
    assert {decision.subject for decision in given.decisions if "by a sample" in decision.reason} == {"fill"}
    head, _ = table(folder.parent / "manifest.csv")
    assert next(cells for cells in head if cells[0] == "# fill")[2].startswith("by a sample: ")
