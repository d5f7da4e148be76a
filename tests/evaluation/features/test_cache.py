"""A folder of features: whole or not there."""

import json
from pathlib import Path

import numpy as np
import pytest

from evaluation.features.cache import DIGESTS, GROUPS, IDS, INDEX, LABELS, ROWS, Partial, read_whole

N, WIDTH = 10, 4
X = np.random.default_rng(0).normal(size=(N, WIDTH)).astype(np.float32)
DIGEST = np.arange(N) - 2**62
BESIDE = {LABELS: np.arange(N), IDS: np.array([f"image {i}" for i in range(N)]), GROUPS: np.arange(N) // 2}


def filled(root: Path, lost: int | None = None) -> Path:
    partial = Partial(root, "key", N, WIDTH, block=3)
    partial.prepare()
    for rows in partial.open():
        kept = np.array([row != lost for row in rows])
        partial.write(rows[0], X[rows], kept, DIGEST[rows])
    partial.flush()
    partial.publish(root / "key", BESIDE, {"model": "m"})
    return root / "key"


def test_what_was_written_is_read(tmp_path: Path) -> None:
    found = read_whole(filled(tmp_path))
    assert (found[ROWS] == X).all() and isinstance(found[ROWS], np.memmap) and found[ROWS].dtype == np.float32
    assert (found[LABELS] == np.arange(N)).all() and found[IDS].tolist() == BESIDE[IDS].tolist()
    assert found["model"] == "m" and sorted(p.name for p in tmp_path.iterdir()) == ["key"]
    assert read_whole(tmp_path / "another") is None


def test_unreadable_rows_are_left_out_of_all(tmp_path: Path) -> None:
    found = read_whole(filled(tmp_path, lost=4))
    others = np.delete(np.arange(N), 4)
    assert (found[ROWS] == X[others]).all() and (found[LABELS] == others).all()
    assert (found[GROUPS] == others // 2).all() and (found[DIGESTS] == DIGEST[others]).all()


def test_a_second_process_fills_only_what_the_first_has_not(tmp_path: Path) -> None:
    first = Partial(tmp_path, "key", N, WIDTH, block=3)
    first.prepare()
    assert len(first.open()) == 4
    first.write(0, X[0:3], np.ones(3, bool), DIGEST[0:3])
    first.write(3, X[3:6], np.ones(3, bool), DIGEST[3:6])
    first.flush()
    first.write(9, X[9:], np.ones(1, bool), DIGEST[9:])  # never flushed: lost with the process
    second = Partial(tmp_path, "key", N, WIDTH, block=3)
    second.prepare()
    assert list(second.open()) == [[6, 7, 8], [9]]


def test_ranks_share_the_blocks(tmp_path: Path) -> None:
    partial = Partial(tmp_path, "key", N, WIDTH, block=3)
    partial.prepare()
    assert list(partial.open(0, 2)) == [[0, 1, 2], [6, 7, 8]]
    assert list(partial.open(1, 2)) == [[3, 4, 5], [9]]


def test_another_block_size_starts_again(tmp_path: Path) -> None:
    first = Partial(tmp_path, "key", N, WIDTH, block=3)
    first.prepare()
    first.open()
    first.write(0, X[:3], np.ones(3, bool), DIGEST[:3])
    first.flush()
    second = Partial(tmp_path, "key", N, WIDTH, block=5)
    second.prepare()
    assert len(second.open()) == 2


def test_publishing_needs_every_block(tmp_path: Path) -> None:
    partial = Partial(tmp_path, "key", N, WIDTH, block=3)
    partial.prepare()
    partial.open()
    with pytest.raises(RuntimeError, match="4 blocks"):
        partial.publish(tmp_path / "key", BESIDE, {})


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
def test_a_damaged_folder_is_refused_and_can_be_made_again(tmp_path: Path, capsys, damage) -> None:
    folder = filled(tmp_path)
    damage(folder)
    assert read_whole(folder) is None
    assert f"the feature cache {folder} is damaged" in capsys.readouterr().out
    assert read_whole(filled(tmp_path)) is not None
