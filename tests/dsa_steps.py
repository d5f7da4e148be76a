"""A step of real images, and DSA for it."""

import torch
from torch import Tensor

from sslkit.embeddings import Embeddings
from sslkit.regularizers.dsa import DSA

N, D = 24, 8


def step(fashion, views: int = 2, rows: range = range(N)) -> tuple[Embeddings, Tensor]:
    generator = torch.Generator().manual_seed(1)
    images = fashion.__getitems__(list(rows))["images"]
    z = torch.randn(views, len(images), D, generator=generator, requires_grad=True)
    h = torch.randn(views, len(images), 2 * D, generator=generator)
    seen = [images.float() / 255 * (1 - 0.2 * v) for v in range(views)]
    return Embeddings(z=z, h=h, target=None, index=torch.tensor(rows), views=seen), images


def build(**options) -> DSA:
    torch.manual_seed(0)
    prior = {} if "prior" in options else {"prior": "hog", "prior_size": 16}
    return DSA(D, **{"hidden": 16, "eta": 5, **prior, **options})
