"""Near-copies across a split are counted, told in one line and mended by a command; groups are joined."""

from pathlib import Path

import numpy as np
import pytest

from sslkit.data import copies
from sslkit.data.columns import Columns
from sslkit.data.copies import join_groups, line_across, mend_of_near, near_in_train, near_within, nearest_across

BASE = np.random.default_rng(0).integers(-(2**62), 2**62, (64, 4))  # unrelated hashes
NEAR = BASE ^ 1  # a bit in each word


def test_test_images_with_a_near_copy_in_train_are_told() -> None:
    tested = np.concatenate([NEAR[:5], BASE[60:]])
    assert near_in_train([BASE[:30], BASE[30:60]], tested).tolist() == [True] * 5 + [False] * 4
    assert near_in_train([BASE, None], tested) is None is near_in_train([BASE], None)


def test_the_nearest_on_the_other_side_is_told_to_both() -> None:
    hashes = np.concatenate([BASE, NEAR[:3], np.zeros((2, 4), np.int64)])
    other = nearest_across(hashes, np.arange(69) < 64)
    assert other[:3].tolist() == [64, 65, 66] and other[64:].tolist() == [0, 1, 2, -1, -1] and (other[3:64] < 0).all()


def test_near_copies_of_one_unit_are_none_of_others() -> None:
    hashes = np.concatenate([BASE, NEAR[:3]])
    units = np.r_[:64, 0, 1, 99]
    assert np.flatnonzero(near_within(hashes, None)).tolist() == [0, 1, 2, 64, 65, 66]
    assert np.flatnonzero(near_within(hashes, units)).tolist() == [2, 66]
    assert near_within(None, units) is None


@pytest.mark.parametrize(
    ("columns", "source", "given", "end"),
    [
        (Columns(), "photos", False, "; columns.group=near-copies keeps them on one side"),
        (Columns(group="near-copies"), "photos", False, None),
        (Columns(), "photos", True, "; python recipes/look.py data=photos 'leave_out=[near_copies]' shows them"),
        (Columns(group="near-copies"), "photos", True, "; python recipes/look.py data=photos"),
        (Columns(), None, True, ""),
    ],
)
def test_the_line_says_what_mends_it(columns: Columns, source: str | None, given: bool, end: str | None) -> None:
    mend = mend_of_near(columns, source, is_given=given)
    assert mend is end is None or mend.startswith(end)
    tested = np.r_[0, 100:104], np.concatenate([BASE[:1], NEAR[1:3], ~NEAR[40:42]])
    line = line_across((np.arange(64), BASE), tested, "test images", columns, source, is_given=given)
    assert line == ("" if end is None else f"3 of 5 test images have a near-copy in train (1 exact){mend}")


def test_nothing_is_said_of_exact_copies_alone() -> None:
    both = np.arange(64), BASE
    assert line_across(both, both, "test images", Columns(), "photos", is_given=False) == ""


def test_joined_groups_are_the_finest_that_hold_both() -> None:
    joined = join_groups(np.array([7, 7, -3, 5, 9, 5]), np.array([1, 2, 2, 3, 4, 5]))
    assert joined.tolist() == [-3, -3, -3, 5, 9, 5]
    order = np.array([5, 2, 0, 4, 1, 3])
    again = join_groups(np.array([7, 7, -3, 5, 9, 5])[order], np.array([1, 2, 2, 3, 4, 5])[order])
    assert again.tolist() == joined[order].tolist()


def test_more_than_can_be_compared_is_said(monkeypatch) -> None:
    monkeypatch.setattr(copies, "COMPARED", 5)
    hashes = np.random.default_rng(0).integers(-(2**62), 2**62, (4, 4))
    with pytest.warns(UserWarning, match="not looked for among 8 images: 5 are compared at most"):
        assert copies.near_in_train([hashes], hashes) is None
    with pytest.warns(UserWarning, match="not looked for among 8 images"):
        assert copies.near_within(np.concatenate([hashes, hashes]), None) is None


def test_near_copies_of_many_pictures_are_kept_in_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another process, here one that remembers nothing, reads what the first has compared."""
    compared: list[int] = []
    group = copies.group_near_copies
    monkeypatch.setattr(copies, "group_near_copies", lambda hashes: compared.append(1) or group(hashes))
    monkeypatch.setattr(copies, "MANY", 60)
    hashes = np.concatenate([BASE, NEAR[:3]])
    rows = []
    for _ in range(2):
        copies._lead.cache_clear()
        rows.append(copies.lead_near_copies(hashes, tmp_path).tolist())
    assert len(compared) == 1 and rows[0] == rows[1] and rows[0][64:] == rows[0][:3]
    copies.lead_near_copies(hashes ^ 2, tmp_path)
    copies.lead_near_copies(hashes[:50], tmp_path)
    assert len(compared) == 3 and len(list(tmp_path.glob("near-*.npz"))) == 2, "few pictures are compared again"
