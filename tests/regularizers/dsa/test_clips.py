"""DSA's prior on clips: the mean over their frames of what the image prior says."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor

from sslkit.data.items import item_of
from sslkit.errors import UserError
from sslkit.priors import base as prior
from sslkit.priors import build as build_prior
from sslkit.priors._features import sample, tabulate
from sslkit.regularizers.dsa import DSA

N, R, T, SIZE = 7, 2, 5, 20


class Clips:
    """What priors ask of videos: rows of clips, drawn from a seed."""

    name, digest = "clips", "d"
    item = item_of(T, R)

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(0)
        self.pixels = torch.randint(0, 256, (N, R, 3, T, SIZE, SIZE), dtype=torch.uint8, generator=generator)
        self.asked: list[int] = []

    def __len__(self) -> int:
        return N

    def __getitems__(self, rows: list[int]) -> dict[str, Tensor]:
        self.asked.append(len(rows))
        return {"images": self.pixels[rows]}


def frame_by_frame(p: prior.Prior, clips: Tensor) -> Tensor:
    """(N, R, C, T, H, W) -> (N, A), one frame after the other."""
    rows = [
        torch.stack([p(clips[i, r, None, :, t])[0] for r in range(clips.shape[1]) for t in range(clips.shape[3])])
        for i in range(len(clips))
    ]
    return torch.stack([features.mean(0) for features in rows])


@pytest.fixture
def clips() -> Clips:
    return Clips()


@pytest.mark.parametrize("at_once", [1, 10, 23, 256])
@pytest.mark.parametrize("name", ["hog", "pca"])
def test_features_of_a_clip_are_the_mean_over_its_frames(name: str, at_once: int, clips, monkeypatch) -> None:
    monkeypatch.setattr(prior, "_FRAMES_AT_ONCE", at_once)
    p = build_prior(name, size=16)
    if p.needs_fit:
        p.fit(sample(p, clips))
    expected = frame_by_frame(p, clips.pixels)
    assert expected.std(0).max() > 0
    torch.testing.assert_close(p(clips.pixels), expected, atol=1e-5, rtol=1e-4)
    one = clips.pixels[:, 0].float() / 255  # views: (N, C, T, S, S) in [0, 1]
    torch.testing.assert_close(p(one), frame_by_frame(p, one[:, None]), atol=1e-5, rtol=1e-4)


def test_pca_is_fitted_to_frames_that_are_shrunk_as_they_are_read(clips) -> None:
    p = build_prior("pca", size=8)
    frames = sample(p, clips)
    assert frames.shape == (N * R * 4, 3, 8, 8) and frames.dtype is torch.float32  # 4 of the 5 frames
    shown = clips.pixels[:, :, :, [0, 1, 2, 4]].transpose(2, 3).flatten(0, 2)
    other = build_prior("pca", size=8)
    p.fit(frames)
    other.fit(shown)
    torch.testing.assert_close(p(clips.pixels), other(clips.pixels), atol=1e-4, rtol=1e-4)
    p.most_images = 3 * R * 4
    assert len(sample(p, clips)) == 3 * R * 4


def test_the_table_reads_a_few_videos_at_a_time_and_keeps_their_order(clips, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr("sslkit.priors._features._BATCH", 8)
    p = build_prior("hog", size=16)
    table = tabulate(p, clips, cache=tmp_path, device=torch.device("cpu"))
    assert clips.asked == [3, 3, 1]  # 4 * 8 frames of 10 a video
    torch.testing.assert_close(table.all(), p(clips.pixels))
    tabulate(p, clips, cache=tmp_path, device=torch.device("cpu"))
    assert len(clips.asked) == 3


@pytest.mark.parametrize("mode", ["cached", "view"])
def test_terms_of_clips_with_and_without_prepare(mode: str, clips) -> None:
    torch.manual_seed(0)
    z = torch.randn(2, N, 6).requires_grad_()
    views = [clips.pixels[:, r].float() / 255 for r in range(R)]
    e = SimpleNamespace(z=z, h=z, index=torch.arange(N), views=views)
    values = []
    for prepared in (False, True):
        torch.manual_seed(1)
        plugin = DSA(6, prior="hog", prior_size=16, eta=3, mode=mode, neighbours="batch")
        if prepared:
            plugin.prepare(clips)
        terms = plugin.terms(e, clips.pixels)
        values.append(terms)
        assert torch.autograd.grad(sum(terms.values()), z)[0].abs().sum() > 0
    for key, value in values[0].items():  # the clips of the batch are those of the table here
        torch.testing.assert_close(values[1][key], value)


def test_a_file_of_features_knows_videos_by_their_row_only(clips, tmp_path) -> None:
    import numpy as np

    np.save(tmp_path / "f.npy", np.eye(N, 3, dtype=np.float32))
    p = build_prior(f"features:{tmp_path / 'f.npy'}")
    assert len(tabulate(p, clips, cache=None, device=torch.device("cpu"))) == N
    with pytest.raises(UserError, match="use mode=cached"):
        p(clips.pixels)
