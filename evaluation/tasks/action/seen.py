"""Tell whether a network saw the test videos in its pretraining."""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evaluation.features.seen import seen_files
from sslkit.data.file_contents import FileContents
from sslkit.data.sources.walk import VIDEOS
from sslkit.data.video.index import VideoIndex


def seen_films(card: Mapping[str, Any], root: Path, index: VideoIndex, cache: str | Path | None) -> str:
    """Return a note as of `seen` on films. index: of all films of a split, below `root`. cache: of their contents."""

    def content() -> str:
        digest = hashlib.sha256(index.manifest().encode())  # as of `clips.Videos`
        FileContents(root, index.paths, cache).update_content(digest)
        return digest.hexdigest()

    return seen_files(card, root, [index.paths[row] for row in range(len(index))], VIDEOS, "videos", content)
