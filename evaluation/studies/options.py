"""How a table or figure is reproduced: the options of `reproduce`, in a file that a help reads at no cost."""

from dataclasses import dataclass
from pathlib import Path

from sslkit.data.image_options import ROOT
from sslkit.options.settings import setting

SCALES = ("small", "paper")


@dataclass(frozen=True, kw_only=True)
class Options:
    """How a table or figure is reproduced."""

    scale: str = setting("small", "small: images in the package; paper: published data", choices=SCALES)
    root: str | Path = setting(ROOT, "folder of the published data sets")
    out: str | Path = setting("runs/papers", "folder of the results, the trained entries and the cache")
    workers: int = setting(1, "processes that read images, or that share a grid of runs", least=1, most=256)
