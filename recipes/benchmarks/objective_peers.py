"""One training step of an objective built from lightly's heads, losses, masks and encoders, as its examples do.

A peer is made from an untrained method of ours: it copies the backbone, takes the same widths and numbers, and its
forward returns the loss of given views.
"""

import copy
from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from sslkit.objectives.data2vec import outputs_of


class Peer(nn.Module):
    """make: what returns a new trained part, by name. followed: names of those that have a teacher."""

    def __init__(
        self,
        loss: Callable[["Peer", list[Tensor]], Tensor],
        make: dict[str, Callable[[], nn.Module]],
        followed: tuple[str, ...] = (),
    ) -> None:
        super().__init__()
        self.loss = loss
        self.student, self.teacher = nn.ModuleDict(), nn.ModuleDict()
        for name, part in make.items():
            self.student[name] = part()
            if name in followed:  # a second one: parts with weight norm cannot be copied
                self.teacher[name] = part().requires_grad_(False)
                self.teacher[name].load_state_dict(self.student[name].state_dict())

    def forward(self, views: list[Tensor]) -> Tensor:
        return self.loss(self, views)

    def after_step(self) -> None:
        from lightly.models.utils import update_momentum

        for name, part in self.teacher.items():
            update_momentum(self.student[name], part, m=0.99)


def nnclr(ours: nn.Module) -> Peer:
    """Both views one by one, the neighbours from lightly's memory bank."""
    from lightly.loss import NTXentLoss
    from lightly.models.modules import NNCLRPredictionHead, NNCLRProjectionHead, NNMemoryBankModule

    hidden = ours.projector[0].out_features
    bank = NNMemoryBankModule(size=(len(ours.queue.rows), ours.dim))
    contrast = NTXentLoss(temperature=ours.temperature)

    def loss(peer: Peer, views: list[Tensor]) -> Tensor:
        z = [peer.student["projector"](peer.student["backbone"](view)) for view in views]
        p = [peer.student["predictor"](one) for one in z]
        near = [bank(one.detach(), update=k == 1) for k, one in enumerate(z)]
        return (contrast(near[0], p[1]) + contrast(near[1], p[0])) / 2

    heads = {
        "projector": partial(NNCLRProjectionHead, ours.backbone.width, hidden, ours.dim),
        "predictor": partial(NNCLRPredictionHead, ours.dim, 2 * hidden, ours.dim),
    }
    return Peer(loss, {"backbone": partial(copy.deepcopy, ours.backbone), **heads})


def densecl(ours: nn.Module) -> Peer:
    """A shuffled key batch; the local bank holds every place, not the mean of a map."""
    from lightly.loss import NTXentLoss
    from lightly.models.modules import DenseCLProjectionHead
    from lightly.models.utils import batch_shuffle, batch_unshuffle, select_most_similar

    size = (len(ours.queue.rows), ours.dim)
    whole, local = (NTXentLoss(temperature=ours.temperature, memory_bank_size=size) for _ in range(2))

    def embed(parts: nn.ModuleDict, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        maps, pooled = parts["backbone"].feature_map(images)
        features = maps.flatten(2).mT
        return features, parts["projector"](pooled), parts["local"](features)

    def loss(peer: Peer, views: list[Tensor]) -> Tensor:
        features, z, places = embed(peer.student, views[0])
        with torch.no_grad():
            shuffled, order = batch_shuffle(views[1])
            others, key, key_places = (batch_unshuffle(x, order) for x in embed(peer.teacher, shuffled))
            matched = select_most_similar(features, others, key_places)
        return (whole(z, key) + local(places.flatten(0, 1), matched.flatten(0, 1))) / 2

    width = ours.backbone.width
    heads = {
        "projector": partial(DenseCLProjectionHead, width, width, ours.dim),
        "local": partial(DenseCLProjectionHead, ours.backbone.map_channels(), width, ours.dim),
    }
    return Peer(loss, {"backbone": partial(copy.deepcopy, ours.backbone), **heads}, ("backbone", "projector", "local"))


def lejepa(ours: nn.Module) -> Peer:
    """Crops one by one."""
    from lightly.loss.lejepa_loss import LeJEPALoss
    from lightly.models.modules.heads import LeJEPAProjectionHead

    options = {"sigreg_knots": ours.knots, "sigreg_t_max": ours.t_max, "sigreg_num_vectors": ours.slices}
    criterion = LeJEPALoss(lambda_param=ours.weight, **options)
    full = len(ours.views.views)

    def loss(peer: Peer, views: list[Tensor]) -> Tensor:
        z = [peer.student["projector"](peer.student["backbone"](view)) for view in views]
        return criterion(global_proj=torch.stack(z[:full]), local_proj=torch.stack(z[full:]))

    head = partial(LeJEPAProjectionHead, ours.backbone.width, ours.projector[0].out_features, ours.dim)
    return Peer(loss, {"backbone": partial(copy.deepcopy, ours.backbone), "projector": head})


def msn(ours: nn.Module) -> Peer:
    """A masked anchor and whole local crops, by lightly's encoder, mask and loss."""
    from lightly.loss import MSNLoss
    from lightly.models.modules.heads import MSNProjectionHead
    from lightly.models.utils import random_token_mask

    criterion = MSNLoss(temperature=ours.temperature, sinkhorn_iterations=ours.iterations)
    share = 1 - ours.visible / ours.backbone.net.patch_embed.num_patches

    def pooled(vit: nn.Module, images: Tensor, keep: Tensor | None = None) -> Tensor:
        return vit.vit.forward_head(vit.encode(images, idx_keep=keep))

    def loss(peer: Peer, views: list[Tensor]) -> Tensor:
        whole, anchor, *local = views
        vit = peer.student["backbone"]
        keep, _ = random_token_mask((len(anchor), vit.sequence_length), mask_ratio=share)
        h = [pooled(vit, anchor, keep), pooled(vit, torch.cat(local))]
        with torch.no_grad():
            target = peer.teacher["projector"](pooled(peer.teacher["backbone"], whole))
        anchors = peer.student["projector"](torch.cat(h))
        return criterion(anchors, target, peer.student["prototypes"].weight, target_sharpen_temperature=0.25)

    head = partial(MSNProjectionHead, ours.backbone.width, ours.projector[0].out_features, ours.dim)
    parts = {
        "backbone": partial(encoder, ours),
        "projector": head,
        "prototypes": partial(copy.deepcopy, ours.prototypes),
    }
    return Peer(loss, parts, ("backbone", "projector"))


def ibot(ours: nn.Module) -> Peer:
    """DINO on pooled features and lightly's patch loss, one head for both."""
    from lightly.models.modules.heads import DINOProjectionHead

    head = partial(DINOProjectionHead, *head_widths(ours), batch_norm=True)
    return Peer(token_loss(ours, "head"), {"backbone": partial(encoder, ours), "head": head}, ("backbone", "head"))


def dinov2(ours: nn.Module) -> Peer:
    """A head for each and KoLeo; lightly's losses centre, where the paper has Sinkhorn."""
    from lightly.loss import KoLeoLoss
    from lightly.models.modules.heads import DINOv2ProjectionHead

    heads = {name: partial(DINOv2ProjectionHead, *head_widths(ours)) for name in ("head", "patch_head")}
    spread = KoLeoLoss()
    return Peer(
        token_loss(ours, "patch_head", lambda h: ours.koleo_weight * sum(spread(view) for view in h.chunk(2))),
        {"backbone": partial(encoder, ours), **heads},
        ("backbone", "head", "patch_head"),
    )


def token_loss(
    ours: nn.Module, patch_head: str, constrain: Callable[[Tensor], Tensor] | None = None
) -> Callable[[Peer, list[Tensor]], Tensor]:
    """The losses of iBOT and DINOv2 with lightly's block masks. constrain: of the pooled full-size views."""
    from lightly.loss import DINOLoss, IBOTPatchLoss
    from lightly.models.utils import random_block_mask

    k = ours.prototypes.out_features
    views_loss, patch_loss = DINOLoss(output_dim=k, teacher_temp=0.04), IBOTPatchLoss(output_dim=k)
    grid, prefix = ours.backbone.net.patch_embed.grid_size, ours.backbone.net.num_prefix_tokens

    def loss(peer: Peer, views: list[Tensor]) -> Tensor:
        full, local = torch.cat(views[:2]), torch.cat(views[2:])
        mask = random_block_mask((len(full), *grid))
        padded = F.pad(mask.flatten(1), (prefix, 0))
        vit, slow = peer.student["backbone"], peer.teacher["backbone"]
        tokens = vit.encode(full, mask=padded)
        h = vit.vit.forward_head(tokens)
        crops = vit.vit.forward_head(vit.encode(local))
        with torch.no_grad():
            seen = slow.encode(full)
            target = peer.teacher["head"](slow.vit.forward_head(seen)).chunk(2)
            patch_target = peer.teacher[patch_head](slow.vit.fc_norm(seen[padded]))
        head = peer.student["head"]
        found = views_loss(list(target), [*head(h).chunk(2), *head(crops).chunk(len(views) - 2)])
        found = found + patch_loss(patch_target, peer.student[patch_head](vit.vit.fc_norm(tokens[padded])), mask)
        return found + constrain(h) if constrain else found

    return loss


def ijepa(ours: nn.Module) -> Peer:
    """Masks are ours: those of lightly's collator are smaller on 7 x 7 patches. Its predictor has no class token."""
    from lightly.models.modules.ijepa_timm import IJEPAPredictorTIMM
    from lightly.models.utils import apply_masks

    net, decoder = ours.backbone.net, ours.predictor
    prefix = net.num_prefix_tokens

    def loss(peer: Peer, views: list[Tensor]) -> Tensor:
        (images,) = views
        context, blocks = ours.draw(len(images), None)
        blocks = list(blocks.unbind(1))
        vit, slow = peer.student["backbone"], peer.teacher["backbone"]
        keep = torch.cat([torch.zeros(len(images), prefix, dtype=torch.long), context + prefix], dim=1)
        tokens = vit.vit.fc_norm(vit.encode(images, idx_keep=keep)[:, prefix:])
        predicted = peer.student["predictor"](tokens, [context], blocks)
        with torch.no_grad():
            seen = slow.vit.fc_norm(slow.encode(images)[:, prefix:])
            target = apply_masks(F.layer_norm(seen, seen.shape[-1:]), blocks)
        return F.smooth_l1_loss(predicted, target)

    dim = decoder.embed.out_features
    sizes = (net.patch_embed.num_patches, len(decoder.blocks), net.embed_dim, dim, dim // 32)
    predictor = partial(IJEPAPredictorTIMM, *sizes)
    return Peer(loss, {"backbone": partial(encoder, ours), "predictor": predictor}, ("backbone",))


def data2vec(ours: nn.Module) -> Peer:
    """lightly has no data2vec: its encoder and inverse blocks, mask by mask, and our decoder."""
    from lightly.models.utils import random_inverse_block_mask

    prefix = ours.backbone.net.num_prefix_tokens
    length = ours.backbone.net.patch_embed.num_patches

    def loss(peer: Peer, views: list[Tensor]) -> Tensor:
        (images,) = views
        target = averaged(peer.teacher["backbone"], images, ours.layers, prefix)
        losses = []
        for _ in range(ours.masks):
            keep, hidden = random_inverse_block_mask(
                (len(images), length + prefix), mask_ratio=1 - ours.visible / length, num_prefix_tokens=prefix
            )
            vit = peer.student["backbone"]
            patches = vit.vit.fc_norm(vit.encode(images, idx_keep=keep)[:, prefix:])
            places = (keep[:, prefix:] - prefix)[..., None].expand_as(patches)
            grid = torch.randn(len(images), length, patches.shape[-1]) * 0.01
            predicted = peer.student["decoder"](grid.scatter(1, places, patches))
            rows = (hidden - prefix)[..., None].expand(-1, -1, patches.shape[-1])
            losses.append(F.mse_loss(predicted.gather(1, rows), target.gather(1, rows)))
        return torch.stack(losses).mean()

    return Peer(
        loss, {"backbone": partial(encoder, ours), "decoder": partial(copy.deepcopy, ours.decoder)}, ("backbone",)
    )


@torch.no_grad()
def averaged(vit: nn.Module, images: Tensor, layers: int, prefix: int) -> Tensor:
    """(N, L, F) the mean of the normalised outputs of the last MLPs."""
    with outputs_of([block.mlp for block in vit.vit.blocks[-layers:]]) as added:
        vit.encode(images)
    mean = torch.stack([F.instance_norm(one[:, prefix:].mT) for one in added]).mean(0).mT
    return F.layer_norm(mean, mean.shape[-1:])


def encoder(ours: nn.Module) -> nn.Module:
    """lightly's masked ViT around a copy of our network."""
    from lightly.models.modules import MaskedVisionTransformerTIMM

    kept = {"weight_initialization": "skip", "pos_embed_initialization": "skip"}
    return MaskedVisionTransformerTIMM(copy.deepcopy(ours.backbone.net), **kept)


def head_widths(ours: nn.Module) -> tuple[int, int, int, int]:
    """Input, hidden, bottleneck and prototypes of a DINO head."""
    return ours.backbone.width, ours.projector[0].out_features, ours.dim, ours.prototypes.out_features


PEERS = {make.__name__: make for make in (data2vec, densecl, dinov2, ibot, ijepa, lejepa, msn, nnclr)}
