"""Write image files as shards, tar files in the form of WebDataset, for data=shards:OUT.

python recipes/shards.py folder=path/to/images out=path/to/shards
python recipes/shards.py folder=path/to/images out=path/to/shards megabytes=1000
python recipes/shards.py folder=some.csv out=path/to/shards columns.label=breed columns.group=patient
"""

from dataclasses import dataclass
from typing import Any

from sslkit.cli.command import run_plain

from sslkit.data.sources.shard_options import Options
from sslkit.errors import UserError
from sslkit.options.calls import merge
from sslkit.options.settings import setting
from sslkit.terminal import say
from sslkit.terminal.say import counted, words


@dataclass
class Own:
    folder: str | None = setting(
        None,
        "folder of images, whose folders train, val and test are splits, and folders below classes; or several, a list "
        "or a table of files, or a pattern",
    )
    out: str | None = setting(None, "folder to write, new or empty")


SETTINGS = merge((Own, Options))


def main(config: dict[str, Any]) -> None:
    from sslkit.data.sources.shard_writer import write_shards

    folder, out = config.pop("folder"), config.pop("out")
    for name, value in (("folder", folder), ("out", out)):
        if value is None:
            raise UserError(f"give {name}=, as in: python recipes/shards.py folder=path/to/images out=path/to/shards")
    written_splits = write_shards(folder, out, **config)
    for split in written_splits:
        written = f"{counted(split.images, 'image')} in {counted(len(split.shards), 'shard')}"
        say.line(f"{split.split:<9} {written}, such as {split.shards[0]}")
    data = {"method": "byol+dsa", "data": f"shards:{out}", **written_splits[0].columns}
    say.line(f"next      python recipes/train.py {words(data)}")


if __name__ == "__main__":
    run_plain(main, SETTINGS, __doc__, {})
