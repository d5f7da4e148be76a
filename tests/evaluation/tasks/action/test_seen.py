"""Films that a network saw in its pretraining are said to be, wherever they lie now."""

import shutil
from pathlib import Path

import pytest

from evaluation.tasks.action.seen import seen_films


def test_films(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # where the contents of files are remembered
    pytest.importorskip("av")
    from films import write_film

    from sslkit.data.video.clips import open_videos
    from sslkit.data.video.index import index_videos

    for row in range(4):
        (tmp_path / "films" / "ab"[row % 2]).mkdir(parents=True, exist_ok=True)
        write_film(tmp_path / "films" / "ab"[row % 2] / f"{row}.mp4", 3 + row)
    videos = open_videos(tmp_path / "films", cache=None)
    known = {"source": f"video:{tmp_path / 'films'}", "images": 4, "content": videos.content_digest}
    shutil.copytree(tmp_path / "films", tmp_path / "copy")
    (tmp_path / "copy" / "a" / "0.mp4").write_bytes((tmp_path / "films" / "a" / "2.mp4").read_bytes())
    shutil.copytree(tmp_path / "films", tmp_path / "same")
    found = {}
    for name in ("films", "same", "copy", "films/a"):
        root = tmp_path / name
        paths = sorted(str(path.relative_to(root)) for path in root.rglob("*.mp4"))
        index = index_videos(root, paths, videos.reader, None)
        found[name] = seen_films({"method": "byol", "data": known}, root, index, None)
    these = "the network saw these videos in its pretraining, without their labels"
    assert found == {"films": these, "same": these, "copy": "", "films/a": these}
