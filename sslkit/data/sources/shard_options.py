"""The options of writing shards."""

from dataclasses import dataclass

from sslkit.data.columns import Columns
from sslkit.options.settings import setting


@dataclass(frozen=True, kw_only=True)
class Options:
    """How shards are written."""

    megabytes: int = setting(256, "size of a shard", least=1)
    progress: bool = setting(True, "progress bar on a terminal")
    columns: Columns = Columns()
