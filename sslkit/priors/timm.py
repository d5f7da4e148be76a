"""Any timm model, downloaded or from a local file of weights."""

from sslkit.backbones import words
from sslkit.backbones.pretrained import timm_network
from sslkit.priors.base import NetworkPrior
from sslkit.terminal import say


class TimmPrior(NetworkPrior):
    """`timm:NAME[(ARGUMENTS)][:FILE[:PART]]`, see `pretrained.load`."""

    @classmethod
    def from_name(cls, name: str, *, size: int | None, precision: str) -> "TimmPrior":
        word = words.parse(name, f"prior {name}")
        local = f"prior=timm:{word.network}:FILE, or a prior without download, prior=pca or prior=hog"
        made = timm_network(word, where=f"prior {name}", local=local)
        if made.line:
            say.line(f"prior     {made.line}")
        config = {**made.config, "size": min(made.config["input_size"][1:])}
        return cls(name, made.net, config, size=size, precision=precision)
