"""The zoo: a folder of entries, each `backbone.safetensors` with a `card.json` that describes it (see `card.py`).

Beside them a run keeps heads/ (the classes that its objective has learned, see `heads.py`), config.yaml, metrics.csv,
TensorBoard events, views.png, loss.png, embedding.png and checkpoints/; evaluation adds results.jsonl, outcomes/ and
its pictures; an export goes to exports/.

for entry in sslkit.zoo.open("runs/zoo"): ...       # print(sslkit.zoo.open("runs/zoo")) is a table
path = sslkit.zoo.export("runs/zoo/NAME", to="hf")  # or "timm", "torchvision", "onnx"
model = sslkit.load(path)                           # an entry or an export, with model.image_size, model.mean, ...
"""

from sslkit import lazy

__getattr__, __dir__, __all__ = lazy.attributes(
    __name__,
    {
        "CARD": "sslkit.zoo.entry:CARD",
        "WEIGHTS": "sslkit.zoo.entry:WEIGHTS",
        "Zoo": "sslkit.zoo.table:Zoo",
        "ZooEntry": "sslkit.zoo.entry:ZooEntry",
        "export": "sslkit.zoo.exporting:export",
        "interpolate": "sslkit.zoo.interpolation:interpolate",
        "load_lines": "sslkit.zoo.loading:load_lines",
        "open": "sslkit.zoo.table:open",
        "save": "sslkit.zoo.entry:save",
        "update": "sslkit.zoo.entry:update",
    },
    {"load": "sslkit.load"},
)
