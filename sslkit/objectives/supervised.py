"""Supervised: cross-entropy to the labels in the same loop, the upper reference of the self-supervised ones."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import SIMCLR
from sslkit.embeddings import Embeddings, along, own_rows, stack
from sslkit.errors import UserError
from sslkit.objectives.base import Objective
from sslkit.options.ranges import PartialShare, Prototypes
from sslkit.runtime import distributed


@dataclass
class Classified(Embeddings):
    """z and h: the backbone's features. logits: (V, N, classes), of this rank's images; not gathered."""

    logits: Tensor | None = along(None, default=None)


class Supervised(Objective):
    """A linear classifier on the features of two augmented views; images with label -1 are ignored.

    classes: number of labels, 0 ... classes - 1; None: 1000, and `sslkit.pretrain` counts those of the data.
    label_smoothing: share of the target spread over all classes (Szegedy et al. 2016, arXiv 1512.00567).
    """

    views = SIMCLR
    families = ("resnet", "vit")
    needs_labels = True
    compares_views = False

    def __init__(
        self, backbone: nn.Module, *, classes: Prototypes | None = None, label_smoothing: PartialShare = 0.0
    ) -> None:
        super().__init__(backbone)
        classes = 1000 if classes is None else classes
        if classes < 2 or not 0 <= label_smoothing < 1:
            raise UserError(
                f"classes={classes}, label_smoothing={label_smoothing}: at least 2 classes, smoothing from 0 to below 1"
            )
        self.dim = backbone.width
        self.classes = classes
        self.label_smoothing = label_smoothing
        self.projector = nn.Identity()
        self.classifier = nn.Linear(backbone.width, classes)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Classified:
        """Embed all views in one forward; z is the backbone's output."""
        h = self.backbone(torch.cat(list(views)))
        z, logits = stack(len(views), self.projector(h), self.classifier(h))
        return Classified(z=z, h=z, target=None, index=index, logits=logits)

    def align(self, e: Classified) -> Tensor:
        """Mean cross-entropy over the views of all labelled images of all ranks; 0 if there are none.

        Raises UserError for a label out of range on the CPU; on a GPU CUDA's own assertion stops the run.
        """
        if e.labels.device.type == "cpu" and not ((e.labels >= -1) & (e.labels < self.classes)).all():
            raise UserError(
                f"labels from {e.labels.min().item()} to {e.labels.max().item()}, but classes={self.classes}: they "
                "must be 0 ... classes - 1, or -1 where unknown"
            )
        labels = own_rows(e.labels, 0).repeat(len(e.logits))
        total = F.cross_entropy(
            e.logits.flatten(0, 1), labels, ignore_index=-1, reduction="sum", label_smoothing=self.label_smoothing
        )
        labelled = (e.labels >= 0).sum() * len(e.logits)
        return distributed.sum_over_ranks(total) / labelled.clamp(min=1)

    def source_head(self) -> nn.Sequential:
        """The classifier of the labels."""
        return nn.Sequential(self.classifier)
