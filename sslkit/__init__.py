"""sslkit: from a folder of unlabelled images to a ranked zoo of reusable backbones.

    method = sslkit.method("byol+dsa", backbone="resnet18", image_size=32)
    entry = sslkit.pretrain({"method": "byol+dsa", "data": "fashion_mnist"})

Everything is imported when it is first used: `import sslkit` alone loads neither torch nor the network.
"""

import importlib
from typing import Any

__version__ = "0.1.0"

_WHERE = {
    "Method": ("sslkit.method", "Method"),
    "methods": ("sslkit.objectives", "names"),
    "open_images": ("sslkit.data.sources", "open_images"),
    "pretrain": ("sslkit.training.fit", "pretrain"),
    "ZooEntry": ("sslkit.zoo", "ZooEntry"),
    "UserError": ("sslkit.errors", "UserError"),
}
_MODULES = (
    "backbones",
    "data",
    "diagnostics",
    "distributed",
    "exporting",
    "heads",
    "method",
    "objectives",
    "regularizers",
    "training",
    "video_backbones",
    "zoo",
)
__all__ = [*_WHERE, *_MODULES]


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        module, attribute = _WHERE[name]
        return getattr(importlib.import_module(module), attribute)
    if name in _MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
