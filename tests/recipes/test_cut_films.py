"""recipes/cut_films.py as a person types it."""

from pathlib import Path

import pytest
from films import write_film

import sslkit


def test_films_are_cut_and_the_next_step_said(tmp_path: Path, typed) -> None:
    for name in ("one", "two"):
        write_film(tmp_path / f"{name}.mp4", 20)
    done = typed("cut_films", "films=[one.mp4,two.mp4]", "out=films", "frames=5", "progress=false", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "one                  3 pieces in films/train/one, 1 in films/test/one" in done.stdout
    shape = "data.frames=5 data.stride=1 batch_size=6"
    assert f"next python recipes/train.py method=byol+dsa data=video:films \\ {shape}" in " ".join(done.stdout.split())
    videos = sslkit.open_images(f"video:{tmp_path / 'films'}", split="train")
    assert len(videos) == 6 and list(videos.classes) == ["one", "two"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["films=one.mp4"], "give the folder to write: out=films"),
        (["films=one.mp4", "out=films"], "there is no video one.mp4"),
        (["film=one.mp4", "out=films"], "did you mean 'films'"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(words: list[str], said: str, tmp_path: Path, typed) -> None:
    done = typed("cut_films", *words, cwd=tmp_path)
    assert done.returncode == 2 and said in done.stderr and len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert not list(tmp_path.iterdir())
