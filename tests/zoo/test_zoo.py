"""The zoo: a list that is a table, entries that damaged neighbours do not hide, files written whole."""

import json
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch

import sslkit
from sslkit import backbones, zoo
from sslkit.errors import UserError
from sslkit.files import writing

CARD = {
    "format": 1,
    "method": "byol+dsa",
    "config": {},
    "normalize": {"mean": [0.5], "std": [0.5]},
    "data": {"source": "fashion_mnist", "held_out": True},
    "epochs": 6,
    "date": "2026-11-21T16:28:47+00:00",
    "after": {"knn": 0.75, "probe": 0.7845, "n": 2000},
    "diagnostics": {"rankme": 44.5},
}


def make(folder: Path, **fields) -> zoo.ZooEntry:
    body = backbones.build("narrow_resnet", image_size=28, in_chans=1)
    recipe = {"name": "narrow_resnet", "lines": body.recipe.lines, "image_size": 28, "in_chans": 1}
    return zoo.save(folder, body.export(), CARD | {"backbone": recipe} | fields)


def test_a_zoo_is_a_list_and_a_table(tmp_path: Path) -> None:
    make(tmp_path / "b")
    make(tmp_path / "a", method="simclr", data={"source": "clipart", "held_out": False}, epochs=12)
    make(tmp_path / "c", after={}, diagnostics={})
    zoo.save(tmp_path / "d", {"a": torch.zeros(3)}, {})
    found = sslkit.zoo.open(tmp_path)
    assert isinstance(found, list) and [e.folder.name for e in found] == ["a", "b", "c", "d"]
    assert found == [zoo.ZooEntry.load(tmp_path / name) for name in "abcd"]
    assert [" ".join(line.split()) for line in str(found).splitlines()] == [
        "name",
        "quick kNN quick probe RankMe M params MB date",
        "------------- ------------- ------ -------- ---- ----------",
        "a: simclr, 12 epochs on clipart",
        "75.0 % ± 1.9^ 78.5 % ± 1.8^ 44.5 0.32 1.28 2026-11-21",
        "b: byol+dsa, 6 epochs on fashion_mnist",
        "75.0 % ± 1.9 78.5 % ± 1.8 44.5 0.32 1.28 2026-11-21",
        "c: byol+dsa, 6 epochs on fashion_mnist",
        "- - - 0.32 1.28 2026-11-21",
        "d",
        "- - - 0.00 0.00 -",
        "quick: measured in seconds at the end of training, with its 95 % interval",
        "^ at the end of training, on training images",
    ]
    assert found.table() == str(found) == repr(found)


def test_numbers_of_evaluation_stand_beside_the_quick_ones_of_training(tmp_path: Path) -> None:
    entry = make(tmp_path / "a")
    knn = {"protocol": "knn", "data": "fashion_mnist", "metric": "top1", "leaky": False}
    records = [
        {**knn, "value": 0.1},
        {**knn, "value": 0.7351},  # the latest counts
        {**knn, "value": 0.2, "data": "clipart"},
        {**knn, "value": 0.3, "metric": "mean_per_class"},
        {**knn, "value": 0.99, "protocol": "linear", "leaky": True},
        {**knn, "value": 0.98, "protocol": {"of": ["another kind"]}},
    ]
    (entry.folder / "results.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records) + '5\n{"cut sho')
    lines = str(zoo.open(tmp_path)).splitlines()
    assert lines[1].split()[:5] == ["quick", "kNN", "quick", "probe", "kNN"] and "linear" not in lines[1]
    assert " ".join(lines[4].split()).startswith("75.0 % ± 1.9 78.5 % ± 1.8 73.5 %")
    assert lines[-1] == "kNN, linear: by evaluation"


def test_what_evaluation_writes_is_read(tmp_path: Path) -> None:
    from evaluation.results.result import Result
    from evaluation.results.statistics import share
    from evaluation.results.store import append

    entry = make(tmp_path / "a")
    right = torch.arange(500).numpy() < 366
    given = {"recipe": "k=20", "metric": "top1", "model": "a", "data": "fashion_mnist", "details": {"k": 20}}
    append(
        entry, Result.from_estimate(share(right), protocol="knn", outcomes=right, paired_on="rows", seeds=[0], **given)
    )
    assert " 73.2 % " in str(zoo.open(tmp_path))


def test_an_entry_with_a_usual_name_says_it_once_in_80_columns(tmp_path: Path) -> None:
    make(tmp_path / "byol+dsa-fashion_mnist-narrow_resnet-e6-s0")
    make(tmp_path / "mine", data={"source": "/a/long/path" * 9})
    name, header, _, first, numbers, mine, path, *_ = str(zoo.open(tmp_path)).splitlines()
    assert first == "byol+dsa-fashion_mnist-narrow_resnet-e6-s0" and mine == "mine: byol+dsa, 6 epochs on"
    assert path == "/a/long/path" * 9 and max(map(len, (name, header, numbers))) <= 80


def test_damaged_entries_are_told_and_hide_no_other(tmp_path: Path) -> None:
    for name in "abcd":
        make(tmp_path / name)
    (tmp_path / "a" / zoo.CARD).write_text("{")
    (tmp_path / "b" / zoo.WEIGHTS).unlink()
    (tmp_path / "c" / zoo.WEIGHTS).write_bytes(b"cut short")
    found = zoo.open(tmp_path)
    assert [e.folder.name for e in found] == ["d"]
    assert [folder.name for folder in found.damaged] == ["a", "b", "c"]
    *_, said = str(found).partition("\nleft out, 3 that cannot be read:")
    _, a, b, c = re.split(r"\n  [abc]:\s", said)
    assert "is no JSON" in " ".join(a.split()) and zoo.WEIGHTS in b
    assert "not a whole safetensors file" in " ".join(c.split())


def test_an_empty_zoo_and_none(tmp_path: Path) -> None:
    assert zoo.open(tmp_path) == [] and str(zoo.open(tmp_path)).startswith("name")
    with pytest.raises(UserError, match="there is no zoo folder"):
        zoo.open(tmp_path / "x")


def test_the_card_of_a_run_passes(tmp_path: Path) -> None:
    """From make_card to the file, and back."""
    images = sslkit.open_images("digits", split="train")
    np.savez(tmp_path / "few.npz", x_train=images.pixels[:48, 0], y_train=images.labels[:48])
    run = {"method": "simclr+dsa", "batch_size": 16, "data": {"source": str(tmp_path / "few.npz")}, "epochs": 1}
    options = {"out": str(tmp_path / "zoo"), "eval": {"tsne": 0}}
    entry = sslkit.pretrain(run | options | {"progress": False, "device": "cpu"})
    (found,) = zoo.open(tmp_path / "zoo")
    assert found.card == entry.card and "simclr" in str(zoo.open(tmp_path / "zoo"))
    threads = torch.get_num_threads()
    assert found.card["computed"] == {"device": "cpu", "processes": 1, "threads": threads, "precision": "float32"}
    assert found.card["balance"] == {"dsa": {"balance": 3.0, "balance_until": 0.1}}
    net, x = sslkit.load(zoo.export(found, to="timm")).net, torch.zeros(1, 1, 8, 8)
    torch.testing.assert_close(net(x), found.backbone()(x))


def test_a_frozen_network_is_ready_to_use(tmp_path: Path) -> None:
    entry = make(tmp_path / "a", normalize={"mean": [0.25], "std": [0.5]})
    for path in (entry.folder, str(entry.folder), entry.folder / zoo.WEIGHTS):
        net = sslkit.load(path)
        assert (net.name, net.width, net.image_size, net.in_chans, net.mean, net.std) == (
            "a",
            128,
            28,
            1,
            (0.25,),
            (0.5,),
        )
    pixels = torch.randint(0, 256, (2, 1, 28, 28), dtype=torch.uint8)
    torch.testing.assert_close(net.normalize(pixels), (pixels / 255 - 0.25) / 0.5)
    torch.testing.assert_close(net.normalize(pixels), net.normalize(pixels / 255))
    x = net.normalize(pixels)
    torch.testing.assert_close(net(pixels), entry.backbone()(x).detach())
    assert not net(pixels).requires_grad and len(repr(net)) < 500


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("nothing", "there is no"),
        ("zoo", r"is a folder of entries: name one of them: .*/a"),
        ("weights", "nothing in it says which network"),
        ("text", "nothing in it says which network"),
    ],
)
def test_what_cannot_be_loaded(what: str, said: str, tmp_path: Path) -> None:
    entry = make(tmp_path / "zoo" / "a")
    (tmp_path / "text").write_text("x")
    (tmp_path / "weights.safetensors").write_bytes((entry.folder / zoo.WEIGHTS).read_bytes())
    path = {"nothing": "x", "zoo": "zoo", "weights": "weights.safetensors", "text": "text"}[what]
    with pytest.raises(UserError, match=said):
        sslkit.load(tmp_path / path)


def test_a_card_that_says_too_little(tmp_path: Path) -> None:
    bare = zoo.save(tmp_path, {"a": torch.zeros(3)}, {})
    with pytest.raises(UserError, match=r"card\.json has no field backbone"):
        sslkit.load(tmp_path)
    with pytest.raises(UserError, match=r"card\.json has no field backbone"):
        zoo.export(bare, to="timm")


def test_a_folder_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / "x"

    def write(*names: str, text: str) -> None:
        with writing.write_whole_folder(path, "main") as partial:
            for name in names:
                (partial / name).write_text(text)

    def content() -> dict[str, str]:
        return {str(p.relative_to(tmp_path)): p.read_text() for p in tmp_path.rglob("*") if p.is_file()}

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(UserError, match="No space left"), writing.write_whole_folder(path, "main"):
        refuse()
    assert not any(tmp_path.iterdir())
    write("main", "a", text="1")
    (path / "mine").write_text("kept")
    monkeypatch.setattr(writing.os, "fsync", refuse)
    with pytest.raises(UserError, match="No space left"):
        write("main", "a", text="2")
    monkeypatch.undo()
    assert content() == {"x/main": "1", "x/a": "1", "x/mine": "kept"}
    write("main", "a", text="2")
    assert content() == {"x/main": "2", "x/a": "2", "x/mine": "kept"}


@pytest.mark.parametrize("moved", [0, 1])
def test_a_folder_of_a_killed_writer_does_not_look_whole(moved: int, tmp_path: Path, monkeypatch) -> None:
    path, replace, calls = tmp_path / "x", writing.os.replace, []

    def killed(old: Path, new: Path) -> None:
        if len(calls) == moved:
            raise KeyboardInterrupt  # nothing after it is done but the removal of the temporary folder
        calls.append(replace(old, new))

    for text in ("1", "2"):
        with (
            pytest.raises(KeyboardInterrupt) if text == "2" else nullcontext(),
            writing.write_whole_folder(path, "main") as partial,
        ):
            for name in ("main", "a"):
                (partial / name).write_text(text)
            if text == "2":
                monkeypatch.setattr(writing.os, "replace", killed)
    assert {p.name: p.read_text() for p in path.iterdir()} == {"a": str(moved + 1)}


def test_a_table_needs_no_torch(tmp_path: Path) -> None:
    make(tmp_path / "a")
    code = (
        "import sys, time; start = time.process_time(); import sslkit\n"
        "assert time.process_time() - start < 0.3\n"
        f"assert 'narrow' not in str(sslkit.zoo.open({str(tmp_path)!r})); sslkit.zoo.exporting.load\n"
        "assert not {'torch', 'timm', 'onnx', 'onnxruntime'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_zoo_decides_by_the_quick_probe_on_the_same_images(tmp_path) -> None:
    def card(probe: float, **more: object) -> dict:
        after = {"knn": 0.5, "probe": probe, "n": 400, "largest": 0.1}
        about = {"before": {"knn": 0.3, "probe": 0.3}, "pixels": {"knn": 0.5, "probe": 0.6}}
        return {"data": {"source": "digits"}, "after": after, **about, **more}

    for name, probe in (("a", 0.8), ("b", 0.7)):
        zoo.save(tmp_path / name, {"w": torch.zeros(2)}, card(probe))
    opened = zoo.open(tmp_path)
    above = "above raw pixels with 60.0 %, its start with 30.0 % and the largest class with 10.0 %"
    assert str(opened.decision) == f"take a: 80.0 % (75.8 to 83.6); better than b; {above}"
    assert "80.0 % (75.8 to 83.6)" in str(opened) and "before" in str(opened)
    zoo.save(tmp_path / "c", {"w": torch.zeros(2)}, card(0.9, data={"source": "clipart"}))
    assert zoo.open(tmp_path).decision is None, "on other images"


def test_an_entry_at_the_prompt_is_its_folder(tmp_path: Path) -> None:
    assert repr(make(tmp_path / "a")) == f"ZooEntry(folder={tmp_path / 'a'!r})"
