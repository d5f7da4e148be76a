"""The .pt2 file in plain torch: the same features for any batch, its description, and what sslkit does not take."""

from pathlib import Path

import pytest
import torch

import sslkit
from sslkit import zoo
from sslkit.errors import UserError
from sslkit.zoo import exporting


@pytest.mark.parametrize("name", ["resnet18", "narrow_vit"])
def test_plain_torch_gives_the_same_features_for_any_batch(name: str, entry_of, monkeypatch) -> None:
    entry = entry_of(name, 32, 3)
    path = zoo.export(entry, to="torch_export")
    monkeypatch.chdir(path.parent)
    scope: dict = {}
    exec("\n".join(exporting.lines(path)), scope)
    for batch in (1, 3):
        x = torch.randn(batch, 3, 32, 32)
        torch.testing.assert_close(scope["net"](x), entry.backbone()(x), rtol=1e-5, atol=1e-5)


def test_it_is_not_read_back_and_names_no_file_of_this_machine(entry_of) -> None:
    path = zoo.export(entry_of("resnet18", 16, 1), to="torch_export")
    with pytest.raises(UserError):
        sslkit.load(path)
    assert str(Path(sslkit.__file__).parents[1]).encode() not in path.read_bytes()
