"""Cards: checked against the schema when read and written, unknown fields kept, every fault one clear line."""

import copy
import json
import os
import re
from pathlib import Path

import pytest
import torch

from sslkit import zoo
from sslkit.errors import UserError
from sslkit.zoo import card as cards

GOOD = {
    "format": 1,
    "method": "simclr",
    "options": {},
    "config": {"data": {"source": "digits"}},
    "backbone": {
        "name": "resnet18",
        "lines": ["import timm", "net = timm.create_model('resnet18', num_classes=0)"],
        "stem": "as published",
        "width": 512,
        "image_size": 96,
        "in_chans": 3,
    },
    "normalize": {"mean": [0.5, 0.5, 0.5], "std": [0.2, 0.2, 0.2]},
    "data": {"source": "digits", "images": 10, "digest": "00", "licence": None, "held_out": None},
    "seed": 0,
    "epochs": 1,
    "date": "2026-11-21T16:28:47+00:00",
    "before": {},
    "after": {"knn": 0.5, "n": 10},
    "diagnostics": {"rankme": 2.5},
    "features": {"images": 2, "mean": [0.0], "std": [1.0]},
    "unreadable": [],
}


def entry(folder: Path, card: dict) -> Path:
    """An entry whose card is written past sslkit."""
    zoo.save(folder, {"a": torch.zeros(2)}, GOOD)
    (folder / zoo.CARD).write_text(json.dumps(card))
    return folder


def changed(path: str, value: object) -> dict:
    """GOOD with one field set, or without it where the value is ...; path: "backbone.width"."""
    card = copy.deepcopy(GOOD)
    *way, last = path.split(".")
    node = card
    for step in way:
        node = node[step]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return card


def test_a_good_card_and_bare_ones_pass(tmp_path: Path) -> None:
    for card in (GOOD, {}, {"load": "x"}, {k: GOOD[k] for k in ("backbone", "normalize")}):
        zoo.save(tmp_path, {"a": torch.zeros(2)}, card)
        assert zoo.ZooEntry.load(tmp_path).card == card


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("backbone.image_size", "96", 'backbone.image_size is "96", expected a whole number of pixels, at least 1'),
        ("backbone.image_size", 0, "backbone.image_size is 0, expected a whole number of pixels"),
        ("backbone.lines", ..., "backbone.lines is missing, expected lines of Python that bind `net`"),
        ("backbone.lines", [1], "backbone.lines[0] is 1, expected a line of Python"),
        ("backbone", ..., "backbone is missing, expected the network: name, lines, image_size, in_chans"),
        ("backbone", "resnet18", 'backbone is "resnet18", expected the network'),
        ("normalize.mean", [0.5, None, 0.5], "normalize.mean[1] is null, expected a number"),
        ("normalize.std", [], "normalize.std is [], expected one number for each channel"),
        ("normalize", ..., "normalize is missing, expected mean and std of the pixels"),
        ("data.source", ..., "data.source is missing, expected the name or path of the data"),
        ("after.knn", "75 %", 'after.knn is "75 %", expected a number'),
        ("method", {"name": "simclr"}, 'method is {"name": "simclr"}, expected a method such as "byol+dsa"'),
        ("format", "1", 'format is "1", expected the whole number 1'),
        ("epochs", True, "epochs is true, expected a number of epochs"),
        ("config", ..., "config is missing"),
    ],
)
def test_a_fault_names_path_field_and_what_was_expected(path: str, value, said: str, tmp_path: Path) -> None:
    card = changed(path, value)
    folder = entry(tmp_path / "x", card)
    before = (folder / zoo.CARD).read_bytes()
    exact = "^" + re.escape(f"{folder / zoo.CARD}: {said}")
    with pytest.raises(UserError, match=exact):
        zoo.ZooEntry.load(folder)
    with pytest.raises(UserError, match=exact):
        zoo.save(folder, {"a": torch.ones(2)}, card)
    assert (folder / zoo.CARD).read_bytes() == before  # and the weights that stood there
    assert not zoo.ZooEntry(folder, {}).state_dict()["a"].any()


def test_several_faults_are_one_line(tmp_path: Path) -> None:
    card = changed("seed", "x") | {"epochs": "y"}
    with pytest.raises(UserError, match=r"epochs is \"y\".*\(and 1 more such faults\)$") as caught:
        cards.check(card, tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", ["", "{", "[1]", '"x"', "null", "\xff\xfe"])
def test_no_card_at_all(text: str, tmp_path: Path) -> None:
    folder = entry(tmp_path / "x", GOOD)
    (folder / zoo.CARD).write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match=re.escape(str(folder / zoo.CARD))):
        zoo.ZooEntry.load(folder)


def test_a_file_name_that_is_no_text_can_be_read_again(tmp_path: Path) -> None:
    zoo.save(tmp_path / "x", {"a": torch.zeros(2)}, GOOD | {"unreadable": ["a.png", os.fsdecode(b"caf\xe9.png")]})
    found = zoo.ZooEntry.load(tmp_path / "x")
    assert found.card["unreadable"] == ["a.png", "caf\\udce9.png"]
    assert zoo.update(found, note={"b\udcff": ("c\udcff", 1)}).card == zoo.ZooEntry.load(tmp_path / "x").card


def test_a_newer_format_says_to_upgrade(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"format 2 is newer than 1.*pip install --upgrade sslkit"):
        zoo.ZooEntry.load(entry(tmp_path / "x", {"format": 2, "backbone": "told in another way"}))


def test_unknown_fields_survive_a_change(tmp_path: Path) -> None:
    future = changed("backbone.quantized", {"bits": 4}) | {"tags": ["a", None], "after": {"knn": 0.5, "top5": "many"}}
    found = zoo.ZooEntry.load(entry(tmp_path / "x", future))
    assert found.card == future
    new = zoo.update(found, diagnostics={"rankme": 3.0, "lidar": 4.0})
    assert new.card == zoo.ZooEntry.load(found.folder).card == future | {"diagnostics": {"rankme": 3.0, "lidar": 4.0}}
    assert list(new.card) == list(future)  # in their order
    assert not list(found.folder.glob(".*"))


def test_a_change_that_does_not_fit_changes_nothing(tmp_path: Path) -> None:
    found = zoo.ZooEntry.load(entry(tmp_path / "x", GOOD))
    for fields, said in (({"seed": "x"}, "seed is"), ({"note": object()}, "not JSON serializable")):
        with pytest.raises(UserError, match=said):
            zoo.update(found, **fields)
        assert zoo.ZooEntry.load(found.folder).card == GOOD


def test_a_change_of_a_stale_entry_keeps_what_others_wrote(tmp_path: Path) -> None:
    stale = zoo.ZooEntry.load(entry(tmp_path / "x", GOOD))
    zoo.update(stale, tags=["theirs"])
    assert zoo.update(stale, note="ours").card["tags"] == ["theirs"]


def test_a_wide_card_is_checked_quickly(tmp_path: Path) -> None:
    import time

    card = GOOD | {"features": {"images": 9, "mean": [0.1] * 4096, "std": [0.1] * 4096}}
    cards.check(card, tmp_path)
    start = time.process_time()
    cards.check(card, tmp_path)
    assert time.process_time() - start < 0.1


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        ("backbone.image_size", 10**9, "backbone.image_size is 1000000000, expected a whole number of pixels"),
        ("backbone.in_chans", 10**9, "backbone.in_chans is 1000000000"),
        ("backbone.in_chans", 1, "normalize.mean has 3 numbers, expected one for each of 1 channels"),
        ("normalize.std", [0.2, 0.2], "normalize.std has 2 numbers, expected one for each of 3 channels"),
        ("normalize.std", [0.2, 0.0, 0.2], "expected numbers above 0"),
        ("normalize.mean", [0.2, float("nan"), 0.2], "expected finite numbers"),
        ("normalize.std", [0.2, float("inf"), 0.2], "expected finite numbers"),
    ],
)
def test_a_card_whose_parts_disagree_is_refused(path: str, value: object, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        zoo.ZooEntry.load(entry(tmp_path, changed(path, value)))


def test_a_card_nested_without_end_is_refused(tmp_path: Path) -> None:
    folder = entry(tmp_path, GOOD)
    (folder / zoo.CARD).write_text("[" * 100_000)
    with pytest.raises(UserError, match="is no JSON"):
        zoo.ZooEntry.load(folder)
