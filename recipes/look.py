"""Look at a data set before training: a table of every image, which data= takes back, and a page of what to mend.

python recipes/look.py data=path/to/images
python recipes/look.py data=path/to/images out=manifest.csv leave_out=[copies,blank]
python recipes/look.py data=some.csv columns.group=patient out=manifest.parquet

The same command goes on where it was stopped.
"""

from dataclasses import dataclass
from typing import Any

from sslkit.cli.command import run_plain

from sslkit.data.image_options import DataOptions, FileOptions
from sslkit.data.manifest.options import SHARED, Options
from sslkit.errors import UserError
from sslkit.options.calls import merge
from sslkit.options.settings import setting
from sslkit.runtime.context import Runtime


@dataclass
class Own:
    data: str | None = setting(
        None,
        "folder of images, several (A,B), list of files (.txt, .csv), pattern (**/*.jpg), embedded name, .npz, "
        "shards:PATTERN, hf:PATH, published set",
    )


SETTINGS = merge((Own, Options, DataOptions, FileOptions), (Runtime,), SHARED)


def main(config: dict[str, Any]) -> None:
    from sslkit.data.manifest.look import look

    if config["data"] is None:
        raise UserError("give data=, as in: python recipes/look.py data=path/to/images")
    look(**config)


if __name__ == "__main__":
    run_plain(main, SETTINGS, __doc__, {})
