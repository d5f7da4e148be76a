"""DINOv2: iBOT with separate heads, Sinkhorn instead of centres, and KoLeo (Oquab et al. 2024, arXiv 2304.07193)."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.data.views.recipe import View, ViewRecipe
from sslkit.layers import teacher
from sslkit.layers.koleo import koleo, nearest_distance
from sslkit.layers.prototypes import Crops, sinkhorn_of_cosines
from sslkit.layers.similarities import product
from sslkit.numerics import schedules
from sslkit.objectives.dino import head
from sslkit.objectives.ibot import IBOT, MaskedCrops
from sslkit.options.ranges import Count, Depth, PartialShare, Prototypes, Share, Temperature, Weight, Width
from sslkit.runtime import distributed, draws

_VIEW = View(scale=(0.32, 1.0), brightness=0.4, contrast=0.4, saturation=0.2, hue=0.1)


class DINOv2(IBOT):
    """iBOT's two terms, each with a head of its own, on codes that share the batch equally among the prototypes.

    constrain is KoLeo on the pooled features of the full-size views. In each batch exactly the share
    `mask_probability` of the images is masked, with shares spread evenly over mask_share, as in the authors' code.
    A published run also raises the weight decay from 0.04 to 0.2 and decays the learning rate by 0.9 a layer:
    optimizer.weight_decay_end, optimizer.layer_decay. z, target, local: as in DINO.

    prototypes: number K of each head; 65536 to 131072 as published for 142 million images, as in DINO for small data.
    iterations: of Sinkhorn, at the teacher's temperature.
    koleo_weight: of KoLeo; the regulariser `+koleo` is the same term on z.
    momentum: of the teacher at the start; it rises to 1 as a cosine (published for ViT-L: 0.992).
    Others as in iBOT: temperature, warmup_teacher_temperature, teacher_temperature, warmup_epochs, freeze_last_layer,
    hidden, dim, mask_probability, mask_share, patch_weight.
    """

    views = ViewRecipe(
        (replace(_VIEW, blur=1.0), replace(_VIEW, blur=0.1, solarize=0.2)),
        local=replace(_VIEW, scale=(0.05, 0.32), size=98),
        n_local=8,
    )

    def __init__(
        self,
        backbone: nn.Module,
        *,
        prototypes: Prototypes = 65536,
        momentum: Share = 0.992,
        temperature: Temperature = 0.1,
        warmup_teacher_temperature: Temperature = 0.04,
        teacher_temperature: Temperature = 0.07,
        warmup_epochs: Count = 30,
        iterations: Depth = 3,
        freeze_last_layer: Count = 1,
        hidden: Width = 2048,
        dim: Width = 256,
        mask_probability: Share = 0.5,
        mask_share: Sequence[PartialShare] = (0.1, 0.5),
        patch_weight: Weight = 1.0,
        koleo_weight: Weight = 0.1,
    ) -> None:
        super().__init__(
            backbone,
            prototypes=prototypes,
            momentum=momentum,
            temperature=temperature,
            warmup_teacher_temperature=warmup_teacher_temperature,
            teacher_temperature=teacher_temperature,
            warmup_epochs=warmup_epochs,
            freeze_last_layer=freeze_last_layer,
            hidden=hidden,
            dim=dim,
            mask_probability=mask_probability,
            mask_share=mask_share,
            patch_weight=patch_weight,
        )
        self.iterations = iterations
        self.koleo_weight = koleo_weight
        self.center = self.patch_center = None  # Sinkhorn needs none
        self.patch_projector = head(backbone.width, hidden, dim, batch_norm=False)
        self.patch_prototypes = nn.Linear(dim, prototypes, bias=False)
        self.patch_teacher = teacher.copy_of(self.patch_projector, self.patch_prototypes)

    def project(self, pooled: Tensor, patches: Tensor) -> tuple[Tensor, Tensor]:
        """The student's bottlenecks of pooled features (B, F) and of patches (T, F), each by its own head."""
        return self.projector(pooled), self.patch_projector(patches)

    def project_slowly(self, pooled: Tensor, patches: Tensor) -> tuple[Tensor, Tensor]:
        """The teacher's."""
        with teacher.inference(self.patch_teacher[0]):
            return self.teacher[1](pooled), self.patch_teacher[0](patches)

    def patch_last(self) -> nn.Linear:
        """The student's prototypes of the patches."""
        return self.patch_prototypes

    def shares(self, n: int, generator: torch.Generator | None) -> Tensor:
        """(n,) the share of masked patches of each image: 0, or uniform within one of equal parts of mask_share.

        The parts are as many as the masked images of all ranks.
        """
        low, high = self.mask_share
        rows, total = draws.own_rows(n), n * distributed.world_size()
        masked = int(total * self.mask_probability)
        stratum = torch.from_numpy(draws.shuffle(np.array(rows), total, draws.new_key(generator)))
        share = low + (high - low) * (stratum + draws.uniform(rows, (), generator)) / max(masked, 1)
        return torch.where(stratum < masked, share, 0.0)

    @torch.no_grad()
    def codes(self, target: Tensor) -> Tensor:
        """The teacher's distribution over the prototypes by Sinkhorn over the views and images of all ranks."""
        temperature = self.teacher_temperature()
        logits = self.logits(target, temperature).flatten(0, 1)
        return sinkhorn_of_cosines(logits, temperature, self.iterations).unflatten(0, target.shape[:2])

    @torch.no_grad()
    def patch_codes(self, target: Tensor) -> Tensor:
        """The teacher's distribution of the masked patches, by Sinkhorn over those of all ranks."""
        prototypes = F.normalize(self.patch_teacher[1].weight, dim=1)
        temperature = self.teacher_temperature()
        logits = product(F.normalize(target, dim=-1) / temperature, prototypes, tf32=self.mixed)
        return sinkhorn_of_cosines(logits, temperature, self.iterations)

    def constrain(self, e: Crops) -> Tensor:
        """koleo_weight times minus the mean log distance of an image's features to the nearest other's, by view."""
        return self.koleo_weight * koleo(nearest_distance(e.h))

    def observe(self, e: MaskedCrops) -> None:
        """Keep nothing: there are no centres."""

    def after_step(self, progress: float) -> None:
        """Update the teacher and its head of the patches."""
        super().after_step(progress)
        momentum = schedules.along_cosine(self.momentum, 1.0, progress)
        teacher.follow(self.patch_teacher, self.patch_projector, self.patch_prototypes, momentum=momentum)
