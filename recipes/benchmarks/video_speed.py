"""Speed of reading videos relative to the network: decoding and views against r3d_18's forward pass, on one thread.

    python recipes/benchmarks/video_speed.py [--films FOLDER] [--repeats 5]

For each file of FOLDER: the seconds to read two random clips (16 frames, stride 2) of a video and make two views of
112 x 112 pixels by the recipe of clips, split into reading (open, seek, decode, scale to 128 pixels) and views; and the
seconds of torchvision's r3d_18 in a forward pass of these two clips, without gradients. Seconds are CPU time, which
other load affects less; the files are in the page cache. Without FOLDER: generated videos of 340 x 256 pixels and 250
frames, panned and zoomed over scikit-learn's two photographs, as H.264 (as in Kinetics) and as MPEG-4 in AVI (as in
UCF101). The ratio is forward / (reading + views), the speed of the data relative to the network. A training step takes
longer than a forward pass, so its ratio is larger.
"""

import argparse
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import numpy as np
import torch
from PIL import Image
from results import keep
from sklearn.datasets import load_sample_images
from torchvision.models.video import r3d_18

from sslkit.data.loader import EpochRows
from sslkit.data.video.clips import Videos, open_videos
from sslkit.data.views.augmentation import view_generator
from sslkit.data.views.clip_views import augment_clips
from sslkit.data.views.recipe import VIDEO

RESULTS = "video_speed"
SIZE, READ, FRAMES, STRIDE, CLIPS = 112, 128, 16, 2, 2
HEIGHT, WIDTH, LENGTH = 256, 340, 250


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--films", type=Path, help="folder of videos; default: generated ones")
    parser.add_argument("--repeats", type=int, default=5)
    given = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as made:
        films = given.films or _made(Path(made))
        options = {"image_size": READ, "frames": FRAMES, "stride": STRIDE, "clips": CLIPS}
        videos = open_videos(films, cache=None, **options)
        for row in range(len(videos)):
            numbers = measure(videos, row, given.repeats)
            keep(RESULTS, Path(videos.path(row)).name, numbers)
            print(f"{Path(videos.path(row)).name}: {numbers}", flush=True)


def measure(videos: Videos, row: int, repeats: int) -> dict[str, Any]:
    """Median seconds of each part for two clips of one video, and the ratio of each repeat."""
    network = r3d_18(weights=None)
    spent: dict[str, list[float]] = {"read": [], "views": [], "forward": []}
    for repeat in range(repeats + 1):
        rows, generator = EpochRows([row], 0, repeat), view_generator(0, 0, repeat)
        read, batch = _timed(lambda rows=rows: videos.__getitems__(rows))
        made, views = _timed(
            lambda batch=batch, generator=generator: augment_clips(
                batch["images"], VIDEO, SIZE, generator, aspect=batch["aspect"]
            )
        )
        clips = torch.cat(list(views))
        forward, _ = _timed(lambda clips=clips: _forward(network, clips))
        if repeat:  # the first is a warm-up
            for name, seconds in zip(spent, (read, made, forward), strict=True):
                spent[name].append(seconds)
    data = [a + b for a, b in zip(spent["read"], spent["views"], strict=True)]
    ratios = [a / b for a, b in zip(spent["forward"], data, strict=True)]
    facts = videos.facts(row)
    return {
        "film": f"{facts.width} x {facts.height}, {facts.frames} frames, {len(facts.key_pts) or 'no'} key frames",
        "decoder": videos.reader.name,
        "seconds": {name: round(median(seconds), 4) for name, seconds in spent.items()},
        "ratio": {f.__name__: round(f(ratios), 1) for f in (median, min, max)},
    }


def _timed(work: Callable[[], Any]) -> tuple[float, Any]:
    start = time.process_time()
    result = work()
    return time.process_time() - start, result


@torch.no_grad()
def _forward(network: torch.nn.Module, clips: torch.Tensor) -> torch.Tensor:
    return network.eval()(clips)


def _made(folder: Path) -> Path:
    import av

    photos = [Image.fromarray(photo) for photo in load_sample_images().images]
    for name, codec, options in (
        ("h264.mp4", "libx264", {"crf": "23"}),
        ("mpeg4.avi", "mpeg4", {"b": "800k"}),
    ):
        with av.open(str(folder / name), "w") as container:
            stream = container.add_stream(codec, rate=25)
            stream.width, stream.height, stream.pix_fmt = WIDTH, HEIGHT, "yuv420p"
            stream.codec_context.options = options
            for number in range(LENGTH):
                container.mux(stream.encode(av.VideoFrame.from_ndarray(_panned(photos, number), format="rgb24")))
            container.mux(stream.encode(None))
    return folder


def _panned(photos: list[Image.Image], number: int) -> np.ndarray:
    """(HEIGHT, WIDTH, 3) uint8: a slow pan and zoom; a cut to the other photograph after each 125 frames."""
    photo, share = photos[number // 125 % 2], number % 125 / 125
    width = photo.width * (0.55 + 0.3 * share)
    height = width * HEIGHT / WIDTH
    left, top = share * (photo.width - width), share * max(photo.height - height, 0)
    box = (left, top, left + width, min(top + height, photo.height))
    return np.asarray(photo.resize((WIDTH, HEIGHT), Image.Resampling.BILINEAR, box))


if __name__ == "__main__":
    main()
