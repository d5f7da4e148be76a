"""The names of members of tar files, and the parts of them that WebDataset gives a meaning to."""

import posixpath
import re
from functools import lru_cache
from typing import NamedTuple

from sslkit.data.sources.walk import is_usual

_ODD = re.compile(r"(?:^|/)\.{0,2}(?:/|$)")  # an empty part, . or ..
_FIELD = re.compile(r"[^\W\d][\w-]*")
_NO_PHOTOGRAPHS = frozenset((
    "mask", "masks", "seg", "segm", "segmentation", "segmentations", "semantic", "panoptic", "depth", "disparity", "gt",
    "annotation", "annotations", "trimap", "matte", "thumb", "thumbnail", "preview",
))  # fmt: skip


class Name(NamedTuple):
    """The parts of `FOLDER/a.0001.seg.png`.

    key: the name up to the first dot of its last part, `FOLDER/a`; adjacent members of one key are a sample.
    group: with the parts that are no words, `FOLDER/a.0001`: such dots belong to the name. field: the words, `seg`.
    extension: in small letters, `png`; "" without a dot. suffix: all behind the key, in small letters.
    """

    key: str
    group: str
    field: str
    extension: str
    suffix: str

    @property
    def role(self) -> str:
        """`png`, or `seg.png`: what the images that mean the same have in common."""
        return f"{self.field}.{self.extension}" if self.field else self.extension


def parse(name: str) -> Name:
    folder, slash, last = name.rpartition("/")
    first, *middle = last.split(".")
    key = f"{folder}{slash}{first}"
    if not middle:
        return Name(key, key, "", "", "")
    extension = middle.pop().lower()
    if not middle:
        return Name(key, key, "", extension, extension)
    words = [word for word in middle if _FIELD.fullmatch(word)]
    group = ".".join([key, *(word for word in middle if word not in words)])
    return Name(key, group, ".".join(words).lower(), extension, ".".join([*middle, extension]).lower())


def plain(name: str) -> str:
    """The name without `./`, `//`, `..` and a slash at its start, as tar writes a file to a disk."""
    if "\\" in name and "/" not in name:  # written on Windows
        name = name.replace("\\", "/")
    return posixpath.normpath(f"/{name}").lstrip("/") if _ODD.search(name) else name


def target(name: str, link: str, *, is_symbolic: bool) -> str:
    """The plain name that a link points at. name: of the link, plain."""
    inside = is_symbolic and not link.startswith("/")
    return plain(posixpath.join(posixpath.dirname(name), link) if inside else link)


def is_hidden(name: str) -> bool:
    folder, _, last = name.rpartition("/")
    return last[:1] == "." or is_usual(last) or (folder != "" and _hides(folder))


def belongs_to_no_data(name: str) -> bool:
    """Return whether a hidden member is one that desktops leave behind, see `walk.is_usual`."""
    return any(map(is_usual, name.split("/")))


def is_no_photograph(role: str) -> bool:
    """Return whether the images of a role are masks, depths or small copies: `seg.png`, `mask2.png`, `thumb.jpg`."""
    return not _NO_PHOTOGRAPHS.isdisjoint(re.split(r"[._\-\d]+", role.rpartition(".")[0]))


@lru_cache(1024)
def _hides(folder: str) -> bool:
    return any(name[:1] == "." or is_usual(name) for name in folder.split("/"))
