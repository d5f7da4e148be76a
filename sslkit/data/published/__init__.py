"""Published data sets, for every command. A set is one file here; its name is the file's.

images = sslkit.open_images("pets", split="test", root="data")
images = sslkit.open_images("cub2011:/big/birds", split="novel_test")
"""

import dataclasses
import importlib
import os
from functools import partial
from typing import Any

from sslkit.data.image_options import ImageOptions
from sslkit.data.images import Images
from sslkit.data.published.base import Entry, Opened
from sslkit.errors import UserError
from sslkit.options import members
from sslkit.terminal import say

names = partial(members.names, __name__)


def find(name: str) -> Entry:
    """Return a published set by its name. Raises UserError for an unknown name and suggests the nearest."""
    if name not in names():
        raise UserError(f"there is no published set {name!r}: {members.nearest(name, names())}")
    return dataclasses.replace(importlib.import_module(f"{__name__}.{name}").ENTRY, name=name)


def find_published(source: Any) -> Entry | None:
    """Return the published set that a source names, `NAME` or `NAME:ROOT`, or is of; None for other sources."""
    source = source.source if isinstance(source, Images) else source
    name = source.partition(":")[0] if isinstance(source, str) else ""
    return find(name) if name in names() else None


def open_published(source: str, options: ImageOptions) -> Opened:
    """Open a split of `NAME` below `options.root`, or of `NAME:ROOT`. Raises UserError as `Entry.open` does."""
    name, _, root = source.partition(":")
    opened = find(name).open(dataclasses.replace(options, root=root or options.root))
    if source == name and os.path.lexists(name):  # the person may have meant either
        say.warn(f"{name} is read as the published set below {options.root}; the folder here is ./{name}", stacklevel=5)
    return opened
