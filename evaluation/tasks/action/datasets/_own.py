"""Videos of one's own: folders, lists and patterns, named as images are."""

import os

import numpy as np

from evaluation.tasks.action.datasets.base import Films, Listing, check_split, present
from sslkit.data.columns import Columns
from sslkit.data.sources.column_values import refuse_found_groups
from sslkit.data.sources.file_sources import list_files, name_of_files
from sslkit.data.sources.walk import VIDEOS
from sslkit.data.video import clips
from sslkit.errors import UserError

FOLDER = "video"


def open_own(source: str, split: str, columns: Columns) -> Films:
    """List one split of `video:FOLDER`, also of several, a list or a pattern, as `clips.open_videos` names them.

    The classes are those of train; videos without a label are left out. Raises UserError for a source without train, or
    without test or val, for less than two classes, and for test classes that are not in train.
    """
    check_split(source, split)
    refuse_found_groups(columns, f"{source} are videos")
    splits = clips.splits_of_videos(source, columns)
    if "train" not in splits or (split != "train" and len(splits) < 2):
        raise UserError(f"{source} has no train and test (or val) videos: {_LAYOUT}")
    text = clips.files_of(source)
    listed, train = (list_files(text, name, VIDEOS, columns) for name in (split, "train"))
    learned = [] if train.labels is None else sorted(set(train.labels.tolist()) - {-1})
    if len(learned) < 2:
        raise UserError(f"{train.folder}: classification needs at least 2 classes: {_LAYOUT}")
    if listed.labels is None:
        raise UserError(f"{listed.folder}: its videos have no classes: {_LAYOUT}")
    if unknown := sorted(set(listed.labels.tolist()) - {-1, *learned}):
        raise UserError(
            f"{listed.folder}: the classes {', '.join(listed.classes[n] for n in unknown)} are not in train"
        )
    paths, classes = [path.replace(os.sep, "/") for path in listed.paths], [listed.classes[n] for n in learned]
    number = {-1: -1, **{label: position for position, label in enumerate(learned)}}
    listing = Listing(listed.folder, paths, paths, [number[n] for n in listed.labels.tolist()], classes)
    films = present(listing, name=name_of_files(text), split=split)
    without = np.flatnonzero(films.y < 0).tolist()
    return films.without(dict.fromkeys(without, "no label")) if without else films


_LAYOUT = "for action, videos are in train/CLASS/ and test/CLASS/, or in a list with columns of labels and splits"
