"""A folder of features: whole or not there."""

import json
from pathlib import Path

import numpy as np
import pytest

from evaluation.features.cache import (
    DIGESTS,
    GROUPS,
    IDS,
    INDEX,
    KEPT,
    LABELS,
    LIKENESS,
    ROWS,
    WHAT,
    features_store,
    write_features,
)
from sslkit.files.blocks import Blocks

N, WIDTH = 10, 4
X = np.random.default_rng(0).normal(size=(N, WIDTH)).astype(np.float32)
DIGEST = np.arange(N) - 2**62
HASHES = np.stack([DIGEST] * 4, axis=1)
BESIDE = {LABELS: np.arange(N), IDS: np.array([f"image {i}" for i in range(N)]), GROUPS: np.arange(N) // 2}


def blocks_of(root: Path, block: int = 3) -> Blocks:
    return Blocks(root / "key.part", N, block, WHAT)


def write(blocks: Blocks, rows: list[int], lost: int | None = None) -> None:
    kept = np.array([row != lost for row in rows])
    blocks.write(rows, **{ROWS: X[rows], KEPT: kept, DIGESTS: DIGEST[rows], LIKENESS: HASHES[rows]})


def filled(root: Path, lost: int | None = None) -> Path:
    blocks = blocks_of(root)
    for rows in blocks.open():
        write(blocks, rows, lost)
    blocks.flush()
    with blocks.publish(root / "key") as whole:
        write_features(blocks, whole, WIDTH, BESIDE, {"model": "m"})
    blocks.discard()
    return root / "key"


def test_what_was_written_is_read(tmp_path: Path) -> None:
    found = features_store(filled(tmp_path)).read()
    assert (found[ROWS] == X).all() and isinstance(found[ROWS], np.memmap) and found[ROWS].dtype == np.float32
    assert (found[LABELS] == np.arange(N)).all() and found[IDS].tolist() == BESIDE[IDS].tolist()
    assert found["model"] == "m" and sorted(p.name for p in tmp_path.iterdir()) == ["key"]
    assert features_store(tmp_path / "another").read() is None


def test_unreadable_rows_are_left_out_of_all(tmp_path: Path) -> None:
    found = features_store(filled(tmp_path, lost=4)).read()
    others = np.delete(np.arange(N), 4)
    assert (found[ROWS] == X[others]).all() and (found[LABELS] == others).all()
    assert (found[GROUPS] == others // 2).all() and (found[DIGESTS] == DIGEST[others]).all()
    assert (found[LIKENESS] == HASHES[others]).all()


def test_a_second_process_fills_only_what_the_first_has_not(tmp_path: Path) -> None:
    first = blocks_of(tmp_path)
    assert len(first.open()) == 4
    write(first, [0, 1, 2])
    write(first, [3, 4, 5])
    first.flush()
    write(first, [9])  # never flushed: lost with the process
    assert list(blocks_of(tmp_path).open()) == [[6, 7, 8], [9]]


def test_ranks_share_the_blocks(tmp_path: Path) -> None:
    assert list(blocks_of(tmp_path).open(0, 2)) == [[0, 1, 2], [6, 7, 8]]
    assert list(blocks_of(tmp_path).open(1, 2)) == [[3, 4, 5], [9]]


def test_another_block_size_starts_again(tmp_path: Path) -> None:
    first = blocks_of(tmp_path)
    write(first, [0, 1, 2])
    first.flush()
    assert len(blocks_of(tmp_path, block=5).open()) == 2


def test_publishing_needs_every_block(tmp_path: Path) -> None:
    blocks = blocks_of(tmp_path)
    write(blocks, [0, 1, 2])
    blocks.flush()
    with pytest.raises(RuntimeError, match="7 rows"), blocks.publish(tmp_path / "key") as whole:
        write_features(blocks, whole, WIDTH, BESIDE, {})
    assert not (tmp_path / "key").exists()


def test_a_damaged_block_is_computed_again(tmp_path: Path) -> None:
    first = blocks_of(tmp_path)
    write(first, [0, 1, 2])
    first.flush()
    (part,) = first.folder.iterdir()
    part.write_bytes(part.read_bytes()[:-40])
    with pytest.warns(UserWarning, match="is damaged .*: making a part of the features again"):
        assert len(blocks_of(tmp_path).open()) == 4


def truncate(folder: Path) -> None:
    (folder / ROWS).write_bytes((folder / ROWS).read_bytes()[:-8])


def forget_the_index(folder: Path) -> None:
    (folder / INDEX).unlink()


def swap_labels(folder: Path) -> None:
    np.save(folder / LABELS, np.arange(N)[::-1].copy())


def write_half_an_index(folder: Path) -> None:
    (folder / INDEX).write_text((folder / INDEX).read_text()[:20])


def claim_a_later_format(folder: Path) -> None:
    about = json.loads((folder / INDEX).read_text())
    (folder / INDEX).write_text(json.dumps({**about, "format": 99}))


def lose_the_ids(folder: Path) -> None:
    (folder / IDS).unlink()


@pytest.mark.parametrize(
    "damage",
    [truncate, forget_the_index, swap_labels, write_half_an_index, claim_a_later_format, lose_the_ids],
)
def test_a_damaged_folder_is_refused_and_can_be_made_again(tmp_path: Path, damage) -> None:
    folder = filled(tmp_path)
    damage(folder)
    with pytest.warns(UserWarning, match=f"{folder} is damaged .*: making the features again"):
        assert features_store(folder).read() is None
    assert features_store(filled(tmp_path)).read() is not None
