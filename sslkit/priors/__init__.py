"""Frozen priors: image features of an auxiliary model. One file each; its name is the name in `prior=...`."""

from collections.abc import Callable

import torch
from torch import Tensor

from sslkit.errors import UserError, check_one_of, nearest
from sslkit.options import members, own_code
from sslkit.priors.base import NetworkPrior, Prior
from sslkit.runtime.context import PRECISIONS, Runtime


class CallablePrior(Prior):
    """Any function of float images (N, C, H, W) in [0, 1] to (N, A); modules are frozen and set to eval mode."""

    resizes = False

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__(getattr(function, "__qualname__", type(function).__name__))
        if not callable(function) or isinstance(function, type):
            raise UserError(f"prior {self.name} must be a function of images, not a class or a value")
        if isinstance(function, torch.nn.Module):
            function = function.eval().requires_grad_(False)
        self.function = function

    def extract(self, pixels: Tensor) -> Tensor:
        if isinstance(self.function, torch.nn.Module):
            self.function.to(pixels.device)
        return self.function(pixels)


def names() -> tuple[str, ...]:
    """The name of every prior."""
    return members.names(__name__)


def find(name: str) -> type[Prior]:
    """The class of a prior by its name."""
    return members.find(__name__, name)


def build(
    prior: str | Callable[[Tensor], Tensor] | Prior, *, size: int | None = None, precision: str = Runtime.precision
) -> Prior:
    """Build the prior of a given name.

    clip[:MODEL[:PRETRAINED]] (open_clip; a tag, a local file of weights, or TAG:FILE), timm:NAME[:FILE[:PART]]
    (downloaded, or a local file, see `pretrained.load`), zoo:ENTRY (the folder of one, or efficientnet_lite0), hog,
    sift, pca, identity (the pixels), features:FILE.npy, start, random or epoch:K
    (networks of the run, which a method makes), or any function of float images (N, C, H, W) in [0, 1] to
    (N, A), by its name package.module:function or, in Python, itself; package.module:Class is a Prior of your own.
    size: side in pixels of the input; None is the prior's default. precision: of a network, see `NetworkPrior`.
    Raises UserError for an unknown name, unavailable weights, or an option that would change nothing.
    """
    check_one_of("prior_precision", precision, PRECISIONS)
    if isinstance(prior, Prior):
        return prior
    built = _built(prior, size, precision)
    if precision != PRECISIONS[0] and not isinstance(built, NetworkPrior):
        raise UserError(f"prior_precision={precision} is for clip, timm:NAME and zoo:ENTRY, not for prior {built.name}")
    if size is not None and not built.resizes:
        raise UserError(f"prior {built.name} resizes no images: leave prior_size={size} out")
    return built


def _built(prior: str | Callable[[Tensor], Tensor], size: int | None, precision: str) -> Prior:
    if callable(prior):
        return CallablePrior(prior)
    kind, _, rest = prior.partition(":")
    if kind not in names() and own_code.NAME.fullmatch(prior):
        where = f"there is no prior {prior!r} ({nearest(kind, names())}); as code of your own: "
        member = own_code.find(prior, "package.module:function", where)
        if isinstance(member, type) and issubclass(member, Prior):
            return member.from_name(prior, size=size, precision=precision)
        return CallablePrior(member)
    if kind not in names() or (rest and not find(kind).specified):
        raise UserError(f"there is no prior {prior!r}: {nearest(kind, names())}")
    return find(kind).from_name(prior, size=size, precision=precision)
