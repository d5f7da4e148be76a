"""A trained detector as an entry keeps it: a field of the card, and the tensors beside those of the backbone."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor, nn

from sslkit.data.images import Images
from sslkit.errors import UserError
from sslkit.models.detections import Detections
from sslkit.models.detectors.detector import build_detector, detect
from sslkit.models.detectors.sizes import Sizes
from sslkit.models.model import Model
from sslkit.models.passes import Rows, run_whole
from sslkit.numerics.state_dicts import mismatch
from sslkit.runtime.context import Runtime
from sslkit.zoo import heads, weights
from sslkit.zoo.entry import CARD, WEIGHTS, ZooEntry
from sslkit.zoo.heads import DETECTOR, Head

if TYPE_CHECKING:  # importing it takes more than a second
    from torchvision.models.detection import FasterRCNN

# what stands before a name of the backbone in a detector of each kind; of layer4, which boxes and masks share, twice
BODY = ("backbone.", "backbone.body.", "backbone.body.net.", "roi_heads.box_head.res5.", "roi_heads.mask_head.")
FIXED = ".inner."  # of a frozen part


class Detector(nn.Module):
    """A detector with the names of its classes. net: in eval mode. in_chans: of its images."""

    def __init__(self, net: "FasterRCNN", classes: Sequence[str], in_chans: int) -> None:
        super().__init__()
        self.net, self.classes, self.in_chans = net, tuple(classes), in_chans

    def answer(self, picture: Tensor) -> dict[str, np.ndarray]:
        """What `detect` says of a picture (3, H, W) uint8, and its size."""
        arrays = {name: value.numpy() for name, value in detect(self.net, picture, self.in_chans).items()}
        return {**arrays, "size": np.array(picture.shape[1:])}

    def predict_parts(
        self, model: Model, opened: Sequence[Images], runtime: Runtime
    ) -> Iterator[tuple[Detections, Rows]]:
        """Yield the boxes of each image, and its row. Raises UserError for a size, and other precision than float32."""
        if model.image_size != model.card["backbone"]["image_size"]:
            raise UserError(f"image_size={model.image_size}: {model.name} is a detector, which has sizes of its own")
        if runtime.precision != Runtime.precision:
            raise UserError(f"precision={runtime.precision}: a detector predicts in {Runtime.precision}")
        masks = self.net.roi_heads.has_mask()
        for rows in run_whole(self.answer, model, opened, runtime):
            yield Detections.of_images(rows.names, self.classes, rows.x, rows.bad, masks), rows


def split_state(detector: "FasterRCNN", net: nn.Module) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The tensors of a detector on a copy of `net`: those of the network by its own names, and the others.

    What the detector has no use for, as a layer for pooled features, is as in `net`.
    """
    names, state = _in_body(detector, net), detector.state_dict()
    copies = {name: value.detach().cpu().contiguous().clone() for name, value in state.items()}
    body = {plain: copies[name] for name, plain in names.items()}
    return {**net.state_dict(), **body}, {name: value for name, value in copies.items() if name not in names}


def keep(
    entry: ZooEntry, detector: "FasterRCNN", rest: Mapping[str, Tensor], about: Mapping[str, Any], sizes: Sizes
) -> ZooEntry:
    """Keep a detector beside its backbone.

    rest: see `split_state`. about: for the card: `arch`, `classes`, `data`, and perhaps `made` and `measured`.
    Raises UserError if it cannot be written.
    """
    roi = detector.roi_heads
    limits = {"score": roi.score_thresh, "overlap": roi.nms_thresh, "most": roi.detections_per_img}
    how = {"masks": roi.has_mask(), "sizes": asdict(sizes), **limits}
    return entry.keep_part(Head(DETECTOR, [], dict(rest), {}), {**about, **how})


def restore(model: Model, entry: ZooEntry) -> Detector:
    """The detector of an entry on its loaded model, in eval mode.

    Raises UserError for tensors that are damaged, of another backbone, or do not fit the card.
    """
    card = entry.card[DETECTOR]
    sizes = Sizes(**{name: tuple(value) if isinstance(value, list) else value for name, value in card["sizes"].items()})
    how = {"arch": card["arch"], "masks": card["masks"], "tune": "all", "sizes": sizes, "seed": 0}
    net = build_detector(model, len(card["classes"]), **how)
    state = heads.read_state(entry.folder, DETECTOR, weights.sha256(entry.folder / WEIGHTS))[0]
    body = _in_body(net, model.net)
    told = mismatch({name: value for name, value in net.state_dict().items() if name not in body}, state)
    if told:
        file = heads.path(entry.folder, DETECTOR)
        raise UserError(f"{file} does not fit the detector of {entry.folder / CARD}: {told}")
    net.load_state_dict(state, strict=False)
    roi = net.roi_heads
    roi.score_thresh, roi.nms_thresh, roi.detections_per_img = (card[name] for name in ("score", "overlap", "most"))
    return Detector(net.eval(), card["classes"], model.in_chans)


def _in_body(detector: nn.Module, net: nn.Module) -> dict[str, str]:
    """The names of the tensors of the backbone: {in the detector: in the plain network}."""
    plain, names = net.state_dict().keys(), {}
    for name in detector.state_dict():
        whole = name.replace(FIXED, ".")
        short = next((whole.removeprefix(start) for start in BODY if whole.removeprefix(start) in plain), None)
        if short is not None:
            names[name] = short
    return names
