"""The same network with random weights."""

import pytest

import sslkit
from evaluation.features.untrained import with_random_weights


@pytest.mark.parametrize(("name", "how"), [("resnet18", {"image_size": 32}), ("resnet18", {"in_chans": 1})])
def test_it_has_the_shapes_of_the_model(name: str, how: dict) -> None:
    model = sslkit.load(f"random:{name}", **how)
    twin = with_random_weights(model, seed=1)
    shapes = [{key: value.shape for key, value in one.net.state_dict().items()} for one in (model, twin)]
    assert shapes[0] == shapes[1] and twin.digest != model.digest
