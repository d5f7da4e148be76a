"""The options of `look`, also for its command line."""

from dataclasses import dataclass

from sslkit.data.image_options import DataOptions, FileOptions
from sslkit.options.settings import setting

LEAVE_OUT = ("copies", "near_copies", "blank", "odd", "contradicted")
OUT = "runs/look/{name}.csv"
# options that are obeyed beside its own
SHARED = (*DataOptions.__dataclass_fields__, *FileOptions.__dataclass_fields__, "workers", "cache", "progress")


@dataclass(frozen=True, kw_only=True)
class Options:
    """What is written, and how the page shows the images."""

    out: str | None = setting(
        None, "file of the manifest, .csv or .parquet, and beside it the page, .html; null: runs/look/NAME.csv"
    )
    leave_out: list[str] | None = setting(
        None,
        f"what is marked as left out in the manifest, a list of {', '.join(LEAVE_OUT)}: of copies all but one, or "
        "those of held-out images; null: what cannot be read",
    )
    image_size: int = setting(224, "pixels of a side of the pictures, as a network gets them", least=1, most=1024)
