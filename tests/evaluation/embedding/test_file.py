"""The files of features: both formats give back what was written; files of others are refused."""

import importlib.util
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from evaluation.embedding import file as files
from evaluation.embedding.file import check_out, read, write
from evaluation.embedding.table import Embedding
from sslkit.errors import UserError

ABOUT = {
    "model": "net",
    "digest": "ab",
    "data": "mine",
    "image_size": 16,
    "resize": 18,
    "interpolation": "bicubic",
    "channels": 3,
    "mean": [0.5, 0.25, 0.1],
    "std": [0.2, 0.2, 0.3],
    "precision": "float32",
}


@pytest.fixture
def embedding() -> Embedding:
    x = np.random.default_rng(0).normal(size=(7, 5)).astype(np.float32)
    paths = np.array([f"a/{place}.png" for place in range(6)] + ["b/Füchse, 日本.png"])
    splits = np.array(["train"] * 4 + ["test"] * 3)
    return Embedding(x, paths, np.array([0, 0, 1, 1, -1, 1, 0]), ["a", "b"], splits, ("bad.png",), ABOUT)


def same(a: Embedding, b: Embedding) -> None:
    for name in ("x", "paths", "y", "splits"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    assert (list(a.classes), a.unreadable) == (list(b.classes), b.unreadable)
    assert {name: b.about[name] for name in ABOUT} == {name: a.about[name] for name in ABOUT}


@pytest.mark.parametrize("kind", ["npz", "parquet"])
def test_what_is_written_is_read_back(kind: str, embedding, tmp_path) -> None:
    if kind == "parquet":
        pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    path = tmp_path / f"f.{kind}"
    write(embedding, path)
    same(embedding, read(path))
    several = replace(embedding, y=np.tile(np.array([[1, -1]], np.int8), (7, 1)))
    write(several, path)
    same(several, read(path))


def test_parquet_is_a_plain_table(embedding, tmp_path, monkeypatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    monkeypatch.setattr(files, "PARQUET_ROWS", 3)
    write(embedding, tmp_path / "f.parquet")
    rows = parquet.read_table(tmp_path / "f.parquet").to_pylist()
    assert [row["path"] for row in rows] == embedding.paths.tolist()
    assert [row["class"] for row in rows] == ["a", "a", "b", "b", None, "b", "a"]
    np.testing.assert_array_equal([row["features"] for row in rows], embedding.x)


def test_numpy_alone_reads_the_npz(embedding, tmp_path) -> None:
    write(embedding, tmp_path / "f.npz")
    with np.load(tmp_path / "f.npz", allow_pickle=False) as file:
        np.testing.assert_array_equal(file["features"], embedding.x)
        assert (str(file["model"]), str(file["digest"])) == ("net", "ab")
        np.testing.assert_array_equal(file["mean"], ABOUT["mean"])
        assert json.loads(str(file["about"]))["precision"] == "float32"


def test_parquet_without_pyarrow_names_the_command(embedding, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match="pip install pyarrow"):
        write(embedding, tmp_path / "f.parquet")


@pytest.mark.parametrize("name", ["f.csv", "f", "f.npy"])
def test_an_unknown_ending_is_refused(name: str, embedding, tmp_path) -> None:
    with pytest.raises(UserError, match=r"must end in \.npz or \.parquet"):
        write(embedding, tmp_path / name)


def test_a_csv_is_made_by_the_line_that_is_said(embedding, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    write(embedding, tmp_path / "f.npz")
    with pytest.raises(UserError, match=r"; as text: numpy\.savetxt") as error:
        write(embedding, tmp_path / "f.csv")
    exec(f"import numpy; {str(error.value).partition('; as text: ')[2]}")
    np.testing.assert_allclose(np.loadtxt(tmp_path / "f.csv", delimiter=","), embedding.x, rtol=1e-6)


@pytest.mark.parametrize(("changed", "said"), [("digest", "another model"), ("image_size", "another image_size")])
def test_another_model_or_preparation_is_not_overwritten(changed: str, said: str, embedding, tmp_path) -> None:
    write(embedding, path := tmp_path / "f.npz")
    check_out(path, ABOUT)
    with pytest.raises(UserError, match=said):
        check_out(path, {**ABOUT, changed: "other"})


@pytest.mark.parametrize("content", [b"", b"text", b"PK\x03\x04 broken"])
def test_a_file_of_others_is_not_overwritten(content: bytes, tmp_path) -> None:
    (tmp_path / "f.npz").write_bytes(content)
    with pytest.raises(UserError, match=r"no features of recipes/embed\.py"):
        check_out(tmp_path / "f.npz", ABOUT)
    np.savez(tmp_path / "g.npz", x=np.zeros(3))
    with pytest.raises(UserError, match=r"no features of recipes/embed\.py"):
        read(tmp_path / "g.npz")


def test_a_full_disk_leaves_the_old_file(embedding, tmp_path, monkeypatch) -> None:
    write(embedding, path := tmp_path / "f.npz")
    before = path.read_bytes()

    def full(*_args, **_options):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", full)
    with pytest.raises(UserError, match="No space left on device; the old content is unchanged"):
        write(embedding, path)
    assert path.read_bytes() == before and [one.name for one in Path(tmp_path).iterdir()] == ["f.npz"]
