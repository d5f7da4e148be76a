"""Names of data, known without a large import, and what is said of a word that names none."""

import ast
import importlib.util
import os
from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from itertools import islice
from pathlib import Path

from sslkit.lazy import members

BUILTIN = ("fashion_mnist", "fashion_mnist_few", "glyphs", "glyph_scripts", "clipart", "digits", "mnist5k")
KINDS = (
    "a folder of images (or several, A,B), a list of files (.txt, .csv), a pattern (**/*.jpg), a .npz file, "
    "shards:PATTERN, hf:PATH, video:FOLDER, frames:FOLDER, torchvision:NAME[:ROOT], a name, or a published "
    "set, NAME[:ROOT]"
)
_MOST = 1000  # files of a folder that are compared: a round number, compared in a moment


def unknown(source: str, others: Iterable[str] = ()) -> str:
    """The message for a source that names nothing, with the nearest file and name. others: names beside `BUILTIN`."""
    path = Path(source).expanduser()
    beside = [os.path.join(os.path.dirname(source), name) for name in _nearest(path.name, _beside(path.parent))]
    if os.sep in source or "." in source:
        return f"there is no file or folder {path.absolute()}{_meant(beside)}; data is {KINDS}"
    meant = _meant([*beside, *_nearest(source, (*BUILTIN, *names_of_published()))] or _nearest(source, others))
    return (
        f"there is no data {source!r}{meant}; {path.absolute().parent} has no such file or folder, and the known names "
        f"are {', '.join(BUILTIN)}; data is {KINDS}"
    )


def names_of_published() -> tuple[str, ...]:
    """The names of the published sets, by listing their folder."""
    return members("sslkit.data.published")


@cache
def torchvision_classes() -> tuple[str, ...]:
    """The names in torchvision.datasets in small letters, read from its file; () if there are none to be found."""
    spec = importlib.util.find_spec("torchvision")
    file = Path(*(spec.submodule_search_locations if spec else ())) / "datasets" / "__init__.py"
    if not file.is_file():
        return ()
    for node in ast.parse(file.read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            return tuple(name.lower() for name in ast.literal_eval(node.value))
    return ()


def _beside(folder: Path) -> list[str]:
    """The files and folders of a folder, these with a slash."""
    try:
        with os.scandir(folder) as entries:
            return [
                f"{entry.name}/" if entry.is_dir() else entry.name
                for entry in islice(entries, _MOST)
                if entry.name[0] != "."
            ]
    except OSError:
        return []


def _nearest(name: str, known: Iterable[str]) -> list[str]:
    """The name that is most alike, in any case of letters; [] if none is."""
    of = {candidate.rstrip("/").lower(): candidate for candidate in known}
    return [of[candidate] for candidate in get_close_matches(name.lower(), of, n=1)]


def _meant(names: Iterable[str]) -> str:
    names = " or ".join(map(repr, names))
    return f": did you mean {names}?" if names else ""
