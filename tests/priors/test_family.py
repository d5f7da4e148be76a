"""A prior is a file of the folder, found by its name; adding one touches nothing else."""

from pathlib import Path

import pytest
import torch

from sslkit import priors
from sslkit.errors import UserError
from sslkit.options import members
from sslkit.priors.base import Prior


def test_every_file_of_the_folder_is_a_prior() -> None:
    there = {path.stem for path in Path(priors.__file__).parent.glob("[!_]*.py")} - {"base"}
    assert set(priors.names()) == there >= {"clip", "features", "hog", "pca", "timm"}
    for name in priors.names():
        assert issubclass(priors.find(name), Prior) and members.summary(priors.find(name))


def test_a_new_file_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "mean.py").write_text(
        "from sslkit.priors.base import Prior\n"
        "class MeanPrior(Prior):\n"
        "    @classmethod\n"
        "    def from_name(cls, name, *, size, precision):\n"
        "        return cls(name)\n"
        "    def extract(self, pixels):\n"
        "        return pixels.mean((2, 3))\n"
    )
    monkeypatch.setattr(priors, "__path__", [*priors.__path__, str(tmp_path)])
    members.names.cache_clear()
    try:
        found = priors.build("mean:of:channels")
        assert found.name == "mean:of:channels" and found(torch.ones(2, 3, 4, 4)).tolist() == [[1.0] * 3] * 2
    finally:
        members.names.cache_clear()


@pytest.mark.parametrize("name", ["pca:3", "hog:64", "pcaa", "base", "_features", ""])
def test_what_is_no_prior_is_one_clear_error(name: str) -> None:
    with pytest.raises(UserError, match=f"there is no prior {name!r}: .*known: {', '.join(priors.names())}"):
        priors.build(name)
