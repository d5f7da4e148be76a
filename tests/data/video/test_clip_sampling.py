"""The numbers of a clip's frames, against plain loops."""

import numpy as np
import pytest

from sslkit.data.video.clip_sampling import (
    RULES,
    center_start,
    clip_frames,
    last_start,
    random_starts,
    span,
    uniform_starts,
)
from sslkit.errors import UserError

CASES = [
    (frames, length, stride)
    for frames in (1, 2, 7, 8, 15, 16, 31, 32, 57, 300)
    for length, stride in ((1, 1), (8, 8), (16, 2), (16, 1), (4, 3))
]


@pytest.mark.parametrize(("frames", "length", "stride"), CASES)
def test_a_clip_is_a_plain_loop(frames: int, length: int, stride: int) -> None:
    for start in range(last_start(frames, length, stride) + 1):
        expected, at = [], start
        for _ in range(length):
            expected.append(at if at < frames else frames - 1)
            at += stride
        assert clip_frames(np.array([start]), frames, length, stride).tolist() == [expected]


@pytest.mark.parametrize(("frames", "length", "stride"), CASES)
def test_the_last_start_ends_on_the_last_frame(frames: int, length: int, stride: int) -> None:
    d = last_start(frames, length, stride)
    numbers = clip_frames(np.array([d]), frames, length, stride)[0]
    if frames >= span(length, stride):
        assert numbers[-1] == frames - 1 and (np.diff(numbers) == stride).all()
    else:
        assert d == 0 and numbers[0] == 0 and numbers.max() == frames - 1


@pytest.mark.parametrize(("frames", "length", "stride"), CASES)
@pytest.mark.parametrize("clips", [1, 2, 3, 10])
def test_uniform_clips_are_the_three_named_rules(frames: int, length: int, stride: int, clips: int) -> None:
    d = max(frames - 1 - (length - 1) * stride, 0)
    starts = {rule: uniform_starts(frames, clips, length, stride, rule).tolist() for rule in RULES}
    assert starts["slowfast"] == [int(d * i / clips) for i in range(clips)]
    if clips > 1:
        step = d // (clips - 1)
        assert starts["slowfast_offset"] == [i * step for i in range(clips)]
        assert starts["endpoints"] == [int(d * i / (clips - 1)) for i in range(clips)]
        assert starts["endpoints"][-1] == d
    else:
        assert starts["slowfast_offset"] == starts["endpoints"] == [d // 2]


def test_slowfasts_default_never_reaches_the_end_and_the_rules_differ() -> None:
    starts = {rule: uniform_starts(300, 10, 16, 2, rule) for rule in RULES}
    assert starts["slowfast"].tolist() == [0, 26, 53, 80, 107, 134, 161, 188, 215, 242]
    assert starts["slowfast_offset"].tolist() == [0, 29, 58, 87, 116, 145, 174, 203, 232, 261]
    assert starts["endpoints"].tolist() == [0, 29, 59, 89, 119, 149, 179, 209, 239, 269]


def test_an_unknown_rule() -> None:
    with pytest.raises(UserError, match=r"rule=endpoint is not a rule.*endpoints"):
        uniform_starts(100, 10, 16, 2, "endpoint")


@pytest.mark.parametrize(("frames", "length", "stride"), CASES)
def test_the_centre_leaves_as_much_before_as_behind(frames: int, length: int, stride: int) -> None:
    start = center_start(frames, length, stride).item()
    behind = frames - start - span(length, stride)
    assert start == 0 if behind < 0 else behind - start in (0, 1)


@pytest.mark.parametrize(("frames", "length", "stride"), CASES)
def test_random_starts_are_possible_ones_and_a_function_of_their_key(frames: int, length: int, stride: int) -> None:
    starts = random_starts(frames, 50, length, stride, (3, 1, 4))
    assert starts.min() >= 0 and starts.max() <= last_start(frames, length, stride)
    np.random.seed(5)  # nothing global has a say
    assert np.array_equal(starts, random_starts(frames, 50, length, stride, (3, 1, 4)))


def test_seed_epoch_and_row_each_change_the_starts() -> None:
    keys = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0), (0, 1, 1)]
    drawn = {tuple(random_starts(100_000, 4, 16, 2, key).tolist()) for key in keys}
    assert len(drawn) == len(keys)


def test_random_starts_are_uniform_and_independent() -> None:
    pairs = np.stack([random_starts(40, 2, 16, 2, (0, 0, row)) for row in range(4000)])  # d = 9
    counts = np.bincount(pairs.ravel(), minlength=10)
    expected = pairs.size / 10
    assert ((counts - expected) ** 2 / expected).sum() < 27.9  # chi squared, 9 degrees of freedom, p = 0.001
    assert abs(np.corrcoef(pairs.T)[0, 1]) < 0.05


def test_a_video_without_frames_has_no_clip() -> None:
    with pytest.raises(ValueError, match="without frames"):
        clip_frames(np.array([0]), 0, 16, 2)
