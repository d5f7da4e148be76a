"""What the tests of DSA share."""

import pytest

from sslkit.data.sources.named import open_images


@pytest.fixture(scope="module")
def fashion():
    return open_images("fashion_mnist")
