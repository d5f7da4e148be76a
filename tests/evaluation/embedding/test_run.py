"""The next command after the features were written keeps how the images are read."""

from pathlib import Path
from types import SimpleNamespace

from evaluation.datasets import Reading
from evaluation.embedding.run import Options, _following


def told(options: Options, splits: tuple[str, ...], reading: Reading) -> str:
    found = SimpleNamespace(splits=splits, classes=["a", "b"])
    place = {"split": None, "root": "data", "image_size": None, "precision": "float32", **reading.values}
    return _following(options, found, {"checkpoint": "zoo/a", "data": "scans"}, place, Path("features.npz"))


def test_values_are_read_as_they_were() -> None:
    reading, all_made = (
        Reading(range=[0, 4095], opacity=False, fill=-5.0),
        Options(neighbours=10, duplicates=True, map="tsne"),
    )
    for wanted, splits in ((Options(), ("all",)), (all_made, ("train", "test"))):
        assert "'range=[0,4095]' opacity=false fill=-5.0" in told(wanted, splits, reading)
    train = told(all_made, ("all",), reading)
    assert train.endswith("data=scans 'range=[0,4095]' opacity=false fill=-5.0")
    assert told(all_made, ("all",), Reading()).endswith("data=scans")
