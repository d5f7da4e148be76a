"""Films that are damaged in their middle: what is read of them depends on the clip, on nothing that was read before."""

import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import torch
from films import numbers_in, write_film

from sslkit.data.loader import EpochRows, make_loader
from sslkit.data.video.clips import Videos, open_videos

EPOCHS = 8


@pytest.fixture(scope="module")
def scarred(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three films, the second damaged in its middle."""
    root = tmp_path_factory.mktemp("scarred")
    for row, codec in enumerate(("mpeg4", "libx264", "mpeg4")):
        write_film(root / f"{row}.mp4", 80, codec, g="50", sc_threshold="0", bf="0")
    content = (root / "1.mp4").read_bytes()
    middle = len(content) // 2
    (root / "1.mp4").write_bytes(content[:middle] + bytes(2000) + content[middle + 2000 :])
    return root


def opened(root: Path) -> Videos:
    return open_videos(root, frames=4, stride=2, clips=1, image_size=40, cache=None)


def read(videos: Videos, epochs: range, workers: int) -> list[dict]:
    """The batches of these epochs from one loader, whose workers live on."""
    loader = make_loader(videos, batch_size=3, seed=7, workers=workers)
    made = []
    for epoch in epochs:
        loader.sampler.set_epoch(epoch)
        made += list(loader)
    return made


def test_neither_epochs_before_nor_workers_nor_copies_change_a_clip(scarred: Path) -> None:
    alone = read(opened(scarred), range(EPOCHS), workers=0)
    taken = torch.cat([batch["index"] for batch in alone]).tolist()
    assert 1 in taken and any(batch["bad"] for batch in alone), "some of its clips touch the damage, others do not"
    worn = opened(scarred)
    for epoch in range(EPOCHS):
        worn.with_sampling("random", clips=1).__getitems__(EpochRows([1], 8, epoch))
    others = {
        "a fresh process for each epoch": [b for e in range(EPOCHS) for b in read(opened(scarred), range(e, e + 1), 0)],
        "two workers": read(opened(scarred), range(EPOCHS), workers=2),
        "after other reading": read(worn, range(EPOCHS), workers=0),
    }
    for name, batches in others.items():
        for a, b in zip(alone, batches, strict=True):
            assert torch.equal(a["images"], b["images"]) and a["bad"] == b["bad"], name
    for batch in alone:
        shown = numbers_in(batch["images"].numpy().transpose(0, 1, 3, 4, 5, 2))
        assert np.array_equal(shown, batch["frames"].numpy())
        assert batch["bad"] in ([], [str(scarred / "1.mp4")])


def test_a_row_costs_nothing_for_the_rows_that_are_not_read(scarred: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    videos = opened(scarred)
    videos.__getitems__([0])
    monkeypatch.setattr(Videos, "__len__", lambda self: 240_000)
    tracemalloc.start()
    try:
        videos.__getitems__([0])
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
