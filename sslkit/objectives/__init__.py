"""Self-supervised objectives. One file each; the file name is the name in `method=...`."""

from sslkit.options import members

BEGIN_WITH = "simclr or byol on a ResNet, mae or dinov2 on a ViT"


def names() -> tuple[str, ...]:
    """The name of every objective, sorted.

    Each is a `method=` of `sslkit.pretrain` and a `name` of `sslkit.method`; regularisers follow after a `+`.
    """
    return members.names(__name__)


def find(name: str) -> type:
    """The class of an objective by its name, or `package.module:Class`."""
    return members.find(__name__, name)
