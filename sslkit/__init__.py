"""sslkit: from a folder of unlabelled images to a ranked zoo of reusable backbones.

    method = sslkit.method("byol+dsa", backbone="resnet18", image_size=32)
    entry = sslkit.pretrain({"method": "byol+dsa", "data": "fashion_mnist"})

Everything is imported when it is first used: `import sslkit` alone loads neither torch nor the network.
"""

from sslkit import lazy

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy.attributes(
    __name__,
    {
        "Method": "sslkit.composition.method:Method",
        "methods": "sslkit.objectives:names",
        "open_images": "sslkit.data.sources.named:open_images",
        "pretrain": "sslkit.training.pretrain:pretrain",
        "ZooEntry": "sslkit.zoo.entry:ZooEntry",
        "UserError": "sslkit.errors:UserError",
        "backbones": "sslkit.backbones",
        "data": "sslkit.data",
        "diagnostics": "sslkit.numerics.diagnostics",
        "distributed": "sslkit.runtime.distributed",
        "exporting": "sslkit.zoo.exporting",
        "heads": "sslkit.layers.heads",
        "lightning_module": "sslkit.training.lightning_module:lightning_module",
        "method": "sslkit.composition.method:method",
        "objectives": "sslkit.objectives",
        "regularizers": "sslkit.regularizers",
        "training": "sslkit.training",
        "zoo": "sslkit.zoo",
    },
)
