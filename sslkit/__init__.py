"""sslkit: from a folder of unlabelled images to a ranked zoo of reusable backbones.

    import sslkit, evaluation

    entry = sslkit.pretrain(method="simclr", data="path/to/images", epochs=100)  # a folder in runs/zoo
    model = sslkit.load("runs/zoo/NAME")  # a torch module: pixels to features, model.features("path/to/images")
    print(sslkit.zoo.open("runs/zoo"))  # a table of all entries
    evaluation.evaluate("runs/zoo/NAME", data="path/to/labelled/images")  # linear probe, kNN, ... with intervals
    evaluation.rank("runs/zoo", "path/to/labelled/images")  # which entry to take
    path = sslkit.zoo.export("runs/zoo/NAME", to="hf")
    method = sslkit.method("byol+dsa", backbone="resnet18", image_size=32)  # for a loop of your own

Every setting of `pretrain` is in `help(sslkit.training.config)` and in `sslkit train --help`; `sslkit --help` lists the
commands. Everything is imported when it is first used: `import sslkit` alone loads neither torch nor the network.
"""

from sslkit import lazy
from sslkit.terminal.hidden import tell_of_hidden

__version__ = "0.1.0"

__getattr__, __dir__, __all__ = lazy.attributes(
    __name__,
    {
        "Measure": "sslkit.training.evaluators:Measure",
        "Method": "sslkit.composition.method:Method",
        "methods": "sslkit.objectives:names",
        "load": "sslkit.models.loading:load",
        "look": "sslkit.data.manifest.look:look",
        "open_images": "sslkit.data.sources.named:open_images",
        "predict": "sslkit.models.predict:predict",
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
    {
        "load_model": "sslkit.load",
        "export": "sslkit.zoo.export",
        "train": "sslkit.pretrain",
        **{
            name: f"evaluation.{name}"
            for name in (
                *("compare", "embed", "evaluate", "extract", "few_shot", "fine_tune", "knn", "linear_probe"),
                *("metrics", "rank", "score"),
            )
        },
    },
)

tell_of_hidden("evaluation", __file__)
