"""The first layer of a ViT as one matrix product on a GPU, where cuDNN's convolution is slow."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class PatchConvolution(nn.Conv2d):
    """A convolution whose stride is its kernel: (B, C, H, W) -> (B, D, H // p, W // q).

    On an H200 it took 10 of 85 ms of a step of Barlow Twins on a ViT-S/16 in bf16 (recipes/benchmarks/gpu), whose
    operations need 0.15. On a CPU it stays a convolution.
    """

    def forward(self, x: Tensor) -> Tensor:
        return self.product(x) if x.is_cuda else super().forward(x)

    def product(self, x: Tensor) -> Tensor:
        """The same by a product of patches (B, H // p, W // q, C p q) with the weights; laid out channels last."""
        if torch.is_autocast_enabled(x.device.type):
            x = x.to(torch.get_autocast_dtype(x.device.type))  # before the copy into patches, which is then half
        p, q = self.kernel_size
        rows, columns = x.shape[2] // p, x.shape[3] // q
        x = x[..., : rows * p, : columns * q].unflatten(3, (columns, q)).unflatten(2, (rows, p))
        patches = x.permute(0, 2, 4, 1, 3, 5).flatten(3)
        return F.linear(patches, self.weight.flatten(1), self.bias).permute(0, 3, 1, 2)


def use_products(embedding: nn.Module) -> None:
    """Let timm's patch embedding compute products, if its kernel is its stride. Names and values of weights stay."""
    layer = getattr(embedding, "proj", None)
    if (
        type(layer) is nn.Conv2d
        and layer.kernel_size == layer.stride
        and layer.padding == (0, 0)
        and layer.dilation == (1, 1)
        and layer.groups == 1
    ):
        layer.__class__ = PatchConvolution
