"""DINO: predict a slow teacher's centred, sharpened softmax from other crops (Caron et al. 2021, arXiv 2104.14294)."""

from collections.abc import Sequence
from dataclasses import replace

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import View, ViewRecipe
from sslkit.embeddings import mean_over_ranks, own_rows, stack
from sslkit.layers import teacher
from sslkit.layers.prototypes import (
    Crops,
    check_options,
    embed_crops,
    held,
    predict_swapped,
    prediction_head,
)
from sslkit.layers.similarities import product
from sslkit.numerics import schedules
from sslkit.objectives.base import Objective
from sslkit.options.ranges import Count, Prototypes, Share, Temperature, Width

_VIEW = View(scale=(0.4, 1.0), brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)


class DINO(Objective):
    """The student sees all crops, the teacher the full-size ones; both end in a softmax over K prototypes.

    Collapse is prevented by subtracting the mean of the teacher's logits (centring, against one prototype for all) and
    dividing them by a small temperature (sharpening, against a uniform softmax).
    z: the bottleneck of the full-size views, before its normalisation; target: the teacher's. e.local holds those of
    the local crops. A published run also raises the weight decay from 0.04 to 0.4 and clips gradients at 3.

    prototypes: number K; 65536 as published for ImageNet, a few hundred to a few thousand for small data.
    momentum: of the teacher at the start; it rises to 1 as a cosine.
    temperature: of the student.
    warmup_teacher_temperature: of the teacher at the start; it rises linearly.
    teacher_temperature: of the teacher after its rise (0.04 throughout in the authors' code; the paper's ViTs: 0.07).
    warmup_epochs: epochs of the teacher's rise (the paper's ViTs: 30).
    center_momentum: of the moving average of the teacher's mean logits.
    freeze_last_layer: number of first epochs in which the prototypes are not trained.
    hidden: width of the head.
    dim: width of the head's bottleneck.
    batch_norm: in the head; off for ViTs, as published.
    Raises UserError for fewer than two prototypes and for temperatures that are not above 0.
    """

    families = ("vit", "resnet")
    views = ViewRecipe(
        (replace(_VIEW, blur=1.0), replace(_VIEW, blur=0.1, solarize=0.2)),
        local=replace(_VIEW, scale=(0.05, 0.4), size=96),
        n_local=8,
    )

    def __init__(
        self,
        backbone: nn.Module,
        *,
        prototypes: Prototypes = 65536,
        momentum: Share = 0.996,
        temperature: Temperature = 0.1,
        warmup_teacher_temperature: Temperature = 0.04,
        teacher_temperature: Temperature = 0.04,
        warmup_epochs: Count = 0,
        center_momentum: Share = 0.9,
        freeze_last_layer: Count = 1,
        hidden: Width = 2048,
        dim: Width = 256,
        batch_norm: bool = False,
    ) -> None:
        super().__init__(backbone)
        self.temperatures = (warmup_teacher_temperature, teacher_temperature)
        check_options("dino", prototypes, temperature=temperature, teacher_temperature=min(self.temperatures))
        self.temperature, self.warmup_epochs, self.freeze_last_layer = temperature, warmup_epochs, freeze_last_layer
        self.momentum, self.center_momentum = teacher.check_momentum(momentum), teacher.check_momentum(center_momentum)
        self.dim = dim
        self.projector = head(backbone.width, hidden, dim, batch_norm)
        self.prototypes = nn.Linear(dim, prototypes, bias=False)
        self.teacher = teacher.copy_of(*self.student())
        self.register_buffer("center", torch.zeros(prototypes))

    def student(self) -> tuple[nn.Module, ...]:
        """The modules that the teacher copies."""
        return self.backbone, self.projector, self.prototypes

    def embed(self, views: Sequence[Tensor], index: Tensor, generator: torch.Generator | None = None) -> Crops:
        """Embed all crops with the student, one forward per resolution, and the full-size views with the teacher."""
        v = len(self.views.views)
        e = embed_crops(self.backbone, self.projector, views, v, index)
        slow = self.teacher[:-1]
        with teacher.inference(slow):
            (e.target,) = stack(v, slow(torch.cat(list(views[:v]))))
        return e

    def align(self, e: Crops) -> Tensor:
        """Cross-entropy of the teacher's softmax of each full-size view with the student's of all other crops (eq. 3).

        The gathered tensors are bottlenecks, D = 256 numbers each, not the K = 65536 logits, and each rank computes the
        logits of its own images only: with R ranks that takes 1/R of the time and memory of the global batch.
        """
        codes = self.codes(own_rows(e.target))
        prototypes = F.normalize(held(self.prototypes.weight, bool(self.frozen())), dim=1)
        of_rank = own_rows(e.directions())
        return mean_over_ranks(predict_swapped(codes, of_rank, prototypes, self.temperature, tf32=self.mixed))

    @torch.no_grad()
    def codes(self, target: Tensor) -> Tensor:
        """The teacher's distribution over the prototypes: bottlenecks (..., D) of this rank -> (..., K)."""
        return self.softmax_of_centred(target, self.center)

    def softmax_of_centred(self, target: Tensor, center: Tensor) -> Tensor:
        """Softmax of the logits minus the centre (K,), over the teacher's temperature: (..., D) -> (..., K)."""
        temperature = self.teacher_temperature()
        return F.softmax(self.logits(target, temperature).sub_(center / temperature), dim=-1)

    def logits(self, target: Tensor, temperature: float = 1.0) -> Tensor:
        """The teacher's last layer, weight-normed with a norm of one: bottlenecks (..., D) -> (..., K)."""
        prototypes = F.normalize(self.teacher[2].weight, dim=1)
        return product(F.normalize(target, dim=-1) / temperature, prototypes, tf32=self.mixed)

    def source_head(self) -> nn.Sequential:
        """The prediction of a crop over the prototypes, as the student makes it."""
        return prediction_head(self.projector, self.prototypes.weight, self.temperature)

    def teacher_temperature(self) -> float:
        """The temperature of this epoch: rises in equal steps over the warm-up epochs, then stays."""
        return schedules.warm_up(*self.temperatures, self.epoch, self.warmup_epochs)

    def observe(self, e: Crops) -> None:
        """Move the centre towards the teacher's mean logits over the views of the global batch (eq. 4)."""
        # The last layer is linear: the mean of the logits is the logits of the mean.
        mean = F.normalize(e.target, dim=-1).mean((0, 1))
        logits = F.normalize(self.teacher[2].weight, dim=1) @ mean
        self.center.lerp_(logits.to(self.center.dtype), 1 - self.center_momentum)

    def frozen(self) -> list[nn.Parameter]:
        """The prototypes, in the first epochs."""
        return [self.prototypes.weight] if self.epoch < self.freeze_last_layer else []

    def after_step(self, progress: float) -> None:
        """Update the teacher, batch-norm buffers too, with a momentum that rises to 1 as a cosine."""
        teacher.follow(self.teacher, *self.student(), momentum=schedules.along_cosine(self.momentum, 1.0, progress))


def head(width: int, hidden: int, dim: int, batch_norm: bool) -> nn.Sequential:
    """Three linear layers with GELU between: (B, width) -> (B, dim). Weights as published at 2048 inputs, sd 0.02."""
    modules: list[nn.Module] = []
    for _ in range(2):
        modules += [nn.Linear(width, hidden), *([nn.BatchNorm1d(hidden)] if batch_norm else []), nn.GELU()]
        width = hidden
    modules.append(nn.Linear(width, dim))
    for layer in modules:
        if isinstance(layer, nn.Linear):
            # 0.02 in a narrow head would shrink the signal in each layer, until GELU is nearly linear
            nn.init.trunc_normal_(layer.weight, std=0.02 * (2048 / layer.in_features) ** 0.5)
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*modules)
