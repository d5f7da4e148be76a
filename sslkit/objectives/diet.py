"""DIET: each image is a class of its own; its views are classified by one linear layer (Balestriero 2023)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.loader import batches_in_order
from sslkit.data.views.recipe import View, ViewRecipe
from sslkit.embeddings import Embeddings, along, mean_over_ranks, own_rows, wide
from sslkit.errors import UserError, check_one_of
from sslkit.layers.similarities import log_sum_exp
from sslkit.objectives.base import Objective
from sslkit.options.ranges import PartialShare, Rows, Temperature
from sslkit.priors.base import to_float
from sslkit.runtime import distributed
from sslkit.runtime.device import to_device_of
from sslkit.runtime.waiting import together

if TYPE_CHECKING:
    from sslkit.data.sources.named import Images

IMAGES = 1000  # of a method without a data set: those of ImageNet's classes, as in supervised
START = 128  # images of a batch whose features the head starts from
LEFT_OUT = -1e9  # added to a logit: its exponential is zero, and its product with a share of zero is no NaN
Head = Literal["random", "features"]


@dataclass
class Indexed(Embeddings):
    """drawn: (M,) rows of the data set whose classes a sampled softmax sums over, equal on all ranks; None: all."""

    drawn: Tensor | None = along(None, default=None)


class Diet(Objective):
    """Cross-entropy of W h with the image's row in the data set (Balestriero 2023, arXiv 2302.10260), no projector.

    W is (images, width) and has no bias: with its gradient and AdamW's two means it takes 16 bytes a number, 1.5 GB for
    a million images of 96 features. Continued from weights of others it is DIET-CP (Rodas et al. 2025, arXiv
    2509.06990), here without its mixup. One view of each image, as published.

    images: number of classes; None: 1000, and `sslkit.pretrain` counts the images of the data.
    label_smoothing: share of the target spread over all images (Szegedy et al. 2016, arXiv 1512.00567). 0.8 as in the
        first paper, where it makes short trainings of new networks possible; `sslkit.pretrain` takes DIET-CP's 0.3 with
        init=: features that are good already need a weaker spread.
    temperature: divides the cosines of features and rows of W, both of length 1; None: products W h, as published.
    drawn: with more images, a step's softmax sums over its own images and so many others, drawn anew, each counted for
        those that it stands for; the spread of label_smoothing stays over all. The limit is a round number: 512 rows of
        logits then take 200 MB.
    head: random, as published; or features: each row of W starts as its image's own feature, of length 1, so that the
        first steps do not pull the network towards random directions.
    Raises UserError for a row beyond `images`.
    """

    views = ViewRecipe((View(),))
    families = ("resnet", "vit")
    compares_views = False
    continued: ClassVar[Mapping[str, Any]] = {"label_smoothing": 0.3}
    rate = 1e-3  # with the 0.009 of other objectives a narrow_resnet lost half of its features in six epochs

    def __init__(
        self,
        backbone: nn.Module,
        *,
        images: Rows | None = None,
        label_smoothing: PartialShare = 0.8,
        temperature: Temperature | None = None,
        drawn: Rows = 100_000,
        head: Head = "random",
    ) -> None:
        super().__init__(backbone)
        check_one_of("diet.head", head, get_args(Head))
        if head == "features":
            backbone.check_images("diet.head=features takes images")
        self.dim = backbone.width
        self.images = images or IMAGES
        self.label_smoothing, self.temperature, self.drawn = label_smoothing, temperature, drawn
        self.fits_weights = head == "features"
        self.projector = nn.Identity()
        self.classifier = nn.Linear(self.dim, self.images, bias=False)
        self.register_buffer("has_started", torch.tensor(not self.fits_weights))

    def prepare(
        self, dataset: "Images", *, cache: Path | None = None, normalize: Callable[[Tensor], Tensor] = Tensor.float
    ) -> None:
        """Set the rows of W to the images' features, if head is features and no checkpoint had W. On all ranks."""
        if self.has_started:
            return
        self._check_rows(torch.tensor([len(dataset) - 1]))
        training, weight = self.backbone.training, torch.zeros_like(self.classifier.weight)
        rows = range(distributed.rank(), len(dataset), distributed.world_size())
        with together("the features that diet starts from"), torch.no_grad():
            self.backbone.eval()
            for shown, batch in batches_in_order(dataset, rows, dataset.item.rows_at_once(START)):
                weight[shown] = F.normalize(wide(self.backbone(normalize(to_float(batch["images"].to(weight.device))))))
            self.backbone.train(training)
        with torch.no_grad():
            weight = distributed.sum_over_ranks(weight)
            self.classifier.weight[: len(dataset)] = weight[: len(dataset)]
        self.has_started.fill_(True)

    def describe(self) -> str:
        """The number of classes, the memory of the head, and of how many images a softmax is."""
        weight = self.classifier.weight
        megabytes = 4 * weight.element_size() * weight.numel() / 1e6
        line = f"each of {self.images:,} images is a class: a head of {megabytes:,.0f} MB with AdamW's state"
        return line + f", a softmax of {self.drawn:,} drawn images a step" * self.is_sampled

    @property
    def is_sampled(self) -> bool:
        return self.images > self.drawn

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Indexed:
        """z is the backbone's output."""
        h, z = self.pass_views(views, self.backbone, self.projector)
        drawn = torch.randint(self.images, (self.drawn,), generator=generator) if self.is_sampled else None
        return Indexed(z=z, h=h, target=None, index=index, drawn=None if drawn is None else to_device_of(drawn, z))

    def align(self, e: Indexed) -> Tensor:
        """Mean cross-entropy with the smoothed row over the views and images of all ranks, each of its own.

        -sum_k q_k log softmax(s)_k = logsumexp(s) - (1 - smoothing) s_i - smoothing mean_k s_k: no tensor of all
        images by all classes is kept.
        """
        self._check_rows(e.index)
        z, weight, index = own_rows(e.z), wide(self.classifier.weight).to(e.z.dtype), own_rows(e.index, 0)
        if self.temperature is not None:
            z, weight = F.normalize(z, dim=-1) / self.temperature, F.normalize(weight, dim=-1)
        target = (z * F.embedding(index, weight)).sum(-1)
        if e.drawn is None:
            partition = log_sum_exp(z, weight, tf32=self.mixed)
        else:
            keys, bias = F.embedding(torch.cat([e.index, e.drawn]), weight), self._log_counts(e.index, e.drawn)
            ones = torch.ones_like(z[..., :1])
            partition = log_sum_exp(torch.cat([z, ones], -1), torch.cat([keys, bias.to(keys)[:, None]], 1))
        smoothing = self.label_smoothing
        return mean_over_ranks((partition - (1 - smoothing) * target - smoothing * (z @ weight.mean(0))).mean())

    def _log_counts(self, index: Tensor, drawn: Tensor) -> Tensor:
        """(B + M,) logarithms of the number of images that each key stands for; they add up to all images.

        index: (B,) the step's images, each counted once. drawn: (M,) stand for the others; none that is in the step.
        """
        repeated = (index[:, None] == index).sum(1)
        is_other = ~torch.isin(drawn, index)
        others = (self.images - (1 / repeated).sum()).clamp(min=1) / is_other.sum().clamp(min=1)
        return torch.cat([-repeated.log(), torch.where(is_other, others.log(), LEFT_OUT)])

    def _check_rows(self, index: Tensor) -> None:
        """Raises UserError for a row out of range on the CPU; on a GPU CUDA's own assertion stops the run."""
        if index.device.type == "cpu" and index.max() >= self.images:
            raise UserError(
                f"diet has a class for each of {self.images:,} images, and row {index.max().item():,} is beyond them: "
                "give the number of images of the data set, objective={'images': len(images)}"
            )
