"""The contract of every objective: L_ssl = align + constrain (Song et al. 2024, arXiv 2407.13541, eq. 1)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from sslkit.data.views.recipe import ViewRecipe
from sslkit.embeddings import Embeddings, Predicted, wide
from sslkit.errors import UserError
from sslkit.layers import teacher
from sslkit.numerics import schedules

if TYPE_CHECKING:
    from sslkit.data.sources.named import Images
    from sslkit.priors.base import Prior

CONTRACT = "Objective"


@dataclass(frozen=True)
class Hidden:
    """Patches that are gray in the picture of a run.

    mask: (n, L) bool. view: number of the view that it is laid on. predicted: the other patches are not what the
    network sees, but what it predicts.
    """

    mask: Tensor
    view: int = 0
    predicted: bool = False


def check_above_zero(**options: float) -> None:
    """Raises UserError for the first option that is not above 0."""
    for name, value in options.items():
        if not value > 0:
            raise UserError(f"{name}={value} must be above 0")


class Objective(nn.Module):
    """An objective owns its heads and its teacher; it never sees the trainer.

    backbone: maps (B, C, H, W) images to (B, backbone.width) features. With a backbone for clips, (B, C, T, H, W), the
        views are clips, and there may be more full-size ones than in the recipe: one for each clip of a video.
    Subclasses set `views`, `self.dim`, the width of z, and `self.projector` if they have one.

    families: kinds of backbone in the paper, the default one first: "resnet", "vit".
    needs_labels: whether the loss reads e.labels.
    compares_views: whether the loss compares views of an image with each other: others predict what is hidden of one,
        or a label or target of each.
    most_views: full-size views that the loss can compare; None: any number.
    lengths_vary: whether the network gets another number of patches in each step.
    view_by_view: whether a step has one pass for each view, whose batch norms then see that view alone, or one pass for
        all views together; they differ where views differ, as in brightness. Subclasses may make it an option.
    fits_weights: whether `prepare` changes weights that are trained; `trainer.strategy=fsdp` cannot share these then.
    continued: defaults of its options in a run with init=, where a paper on continuing has others.
    rate: AdamW's published peak learning rate for new networks, where others' does harm.
    prior: the frozen features that it learns from, if there are some.
    least_images: smallest number of images in a step, over all ranks; least_images_hint: remedy in the error besides a
        larger batch.
    epoch, progress: for schedules; set by `Method` before every step and restored with it: the epoch of the step, and
        the finished share of the run's steps, 0 to 1.
    mixed: whether the step's networks run in mixed precision; set by `Method`. Losses are fp32 all the same, and may
        multiply large matrices in TF32 then.
    watched: detached scalars of the last step to log beside its terms.
    """

    views: ClassVar[ViewRecipe]
    families: ClassVar[tuple[str, ...]] = ("resnet",)
    needs_labels: ClassVar[bool] = False
    compares_views: ClassVar[bool] = True
    most_views: ClassVar[int | None] = None
    lengths_vary: ClassVar[bool] = False
    view_by_view: bool = False
    fits_weights: bool = False
    continued: ClassVar[Mapping[str, Any]] = {}
    rate: ClassVar[float | None] = None
    prior: "Prior | None" = None
    dim: int
    least_images: int = 2
    least_images_hint: str = ""

    def __init__(self, backbone: nn.Module) -> None:
        super().__init__()
        self.backbone = backbone
        self.epoch = 0
        self.progress = 0.0
        self.mixed = False
        self.watched: dict[str, Tensor] = {}

    def check(self, dataset: "Images") -> None:
        """Called before a run's folder is made. Raises UserError for a data set that an option does not fit."""

    def prepare(
        self, dataset: "Images", *, cache: Path | None = None, normalize: Callable[[Tensor], Tensor] = Tensor.float
    ) -> None:
        """Called once before training with the clean training images, on all ranks; for targets fitted to them.

        cache: folder for files that later runs can reuse, which all ranks may write. normalize: of pixels in [0, 1]
            (N, C, H, W) to what the backbone takes.
        """

    def expect_regularizers(self) -> None:
        """Called once, before all else, where regularisers are to read the embeddings; see MAE."""

    def describe(self) -> str:
        """One line for the start of a run, such as a choice and its reason; empty for none."""
        return ""

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Embeddings:
        """views: tensors (N, C, H, W), normalised, in the order of the recipe: views of one size are neighbours.

        generator: on the CPU, in the same state on every rank, for masks and permutations (runtime/draws.py): this
            rank has the rows rank, rank + world_size, ... of the batch. None is torch's own.
        Autocast ends here: the losses get fp32.
        """
        h, z = self.pass_views(views, self.backbone, self.projector)
        return Embeddings(z=z, h=h, target=None, index=index)

    def pass_views(self, views: Sequence[Tensor], *modules: nn.Module) -> list[Tensor]:
        """The outputs (V, N, ...) of each of the modules, in sequence, for views (N, C, H, W), by `view_by_view`."""
        batches = views if self.view_by_view else [torch.cat(list(views))]
        steps = [list(accumulate(modules, lambda x, module: module(x), initial=batch))[1:] for batch in batches]
        return [wide(torch.cat(parts)).unflatten(0, (len(views), -1)) for parts in zip(*steps, strict=True)]

    def full_size(self, views: Sequence[Tensor]) -> int:
        """Return the number of full-size views: of clips there may be more than in the recipe."""
        return sum(v.shape == views[0].shape for v in views) if self.backbone.item.axes else len(self.views.views)

    def hidden(self, n: int, generator: torch.Generator | None) -> dict[str, Hidden]:
        """Captions and masks of the patches that are hidden from the network in a step, for its picture.

        generator: as in `embed`.
        """
        return {}

    def align(self, e: Embeddings) -> Tensor:
        """Loss that pulls the views of one image together. Scalar, fp32. e holds the images of all ranks."""
        raise NotImplementedError

    def constrain(self, e: Embeddings) -> Tensor | None:
        """Loss that prevents collapse; None if the architecture prevents it."""
        return None

    def observe(self, e: Embeddings) -> None:
        """Called with each training batch of all ranks after its losses, without gradient: fills queues and centres."""

    def frozen(self) -> Sequence[nn.Parameter]:
        """Parameters that are not trained in this step; what gradient they have is dropped before the optimiser."""
        return ()

    def after_step(self, progress: float) -> None:
        """Called after an optimiser step, to update a teacher. progress: 0 to 1."""

    def source_head(self) -> nn.Sequential | None:
        """Layers from the backbone's pooled features (N, F) to the logits (N, S) of the loss's own S classes.

        The end of a run keeps them beside the backbone, for LEEP and NCE: see `sslkit.zoo.heads`. None without classes.
        """
        return None

    def constant_lr(self) -> Sequence[nn.Parameter]:
        """Parameters whose learning rate neither warms up nor decays."""
        return ()


class WithTeacher(Objective):
    """An objective with a slow teacher of backbone and projector, whose momentum rises to 1 as a cosine.

    Subclasses call `copy_teacher` once they have their heads; `embed` needs `self.predictor`.
    """

    def copy_teacher(self, momentum: float) -> None:
        """Set the teacher and its momentum at the start. Raises UserError for one that is not from 0 to 1."""
        self.momentum = teacher.check_momentum(momentum)
        self.teacher = teacher.copy_of(self.backbone, self.projector)

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Predicted:
        """The student's and the teacher's passes, over all views or each, see `Objective.view_by_view`."""
        h, z, prediction = self.pass_views(views, self.backbone, self.projector, self.predictor)
        with teacher.inference(self.teacher):
            (target,) = self.pass_views(views, self.teacher)
        return Predicted(z=z, h=h, target=target, index=index, prediction=prediction)

    def after_step(self, progress: float) -> None:
        """Update the teacher, batch-norm buffers too, with a momentum that rises to 1 as a cosine."""
        momentum = schedules.along_cosine(self.momentum, 1.0, progress)
        teacher.follow(self.teacher, self.backbone, self.projector, momentum=momentum)
