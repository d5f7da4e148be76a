"""Predict the classes of every image of a folder, or the boxes or masks in it, into a table and a sheet.

python recipes/predict.py checkpoint=runs/zoo/NAME data=path/to/images out=predictions.csv
find photos -name '*.jpg' | python recipes/predict.py checkpoint=runs/zoo/NAME data=-

Several classes an image, and numbers, likewise. With a model that detect.py kept, the table has a row for each box, in
pixels of the image.
"""

from dataclasses import dataclass
from typing import Any

from sslkit.cli.command import run_plain

from sslkit.data.image_options import FileOptions, ReadOptions
from sslkit.errors import UserError
from sslkit.models.loading import Loading
from sslkit.models.predict import SHARED, Options
from sslkit.options.calls import merge
from sslkit.options.settings import setting
from sslkit.runtime.context import Runtime
from sslkit.terminal import say
from sslkit.terminal.say import words


@dataclass
class Own:
    checkpoint: str | None = setting(None, "zoo entry with a classifier or a detector, or an export of a classifier")
    data: str | None = setting(
        None,
        "folder of images, an image, several (A,B), list of files (.txt, .csv), pattern (**/*.jpg), embedded name, "
        ".npz, shards:PATTERN, hf:PATH, frames:FOLDER of videos, published set; -: paths from standard input",
    )


SETTINGS = merge((Own, Options), (Loading, ReadOptions, FileOptions, Runtime), SHARED)


def main(config: dict[str, Any]) -> None:
    from sslkit.models.predict import predict
    from sslkit.models.predictions import Predictions

    for name in ("checkpoint", "data"):
        if config[name] is None:
            how = "python recipes/predict.py checkpoint=runs/zoo/NAME data=path/to/images"
            raise UserError(f"give {name}=, as in: {how}")
    done = predict(**config)
    for line in str(done).splitlines():
        say.line(line)
    if done.kind is Predictions:  # what exports hold
        say.line(f"next      python recipes/export.py {words({'checkpoint': config['checkpoint'], 'to': 'onnx'})}")


if __name__ == "__main__":
    run_plain(main, SETTINGS, __doc__, {})
