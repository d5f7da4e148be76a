"""Which tensors are on a pretended device: a tag for each storage."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.multiprocessing.reductions import StorageWeakRef

MOST = 20_000  # tags before those of storages that have gone are dropped


@dataclass
class Tag:
    """device: a pretended one, None for the CPU. pinned: memory of the host. arrives: the launch that fills it."""

    storage: StorageWeakRef
    device: torch.device | None = None
    pinned: bool = False
    arrives: int = 0


class Tags:
    """The tags of storages, which views share. A tag goes with its storage, and keeps another from its address."""

    def __init__(self) -> None:
        self.known: dict[int, Tag] = {}
        self.most = MOST

    def of(self, x: Any) -> Tag | None:
        """The tag of a tensor; None without one, and for what is no tensor."""
        if not isinstance(x, Tensor):
            return None
        try:
            found = self.known.get(x.untyped_storage()._cdata)
        except (NotImplementedError, RuntimeError):  # a sparse tensor
            return None
        return None if found is None or found.storage.expired() else found

    def device(self, x: Any) -> torch.device | None:
        """The pretended device of a tensor; None on the CPU, and for what is no tensor."""
        tag = self.of(x)
        return None if tag is None else tag.device

    def put(self, x: Tensor, device: torch.device | None = None, *, pinned: bool = False, arrives: int = 0) -> Tensor:
        """Tag x and what shares its storage; without a device, as one on the CPU."""
        storage = x.untyped_storage()
        self.known.pop(storage._cdata, None)
        if device is not None or pinned or arrives:
            self.known[storage._cdata] = Tag(StorageWeakRef(storage), device, pinned, arrives)
        if len(self.known) > self.most:
            self.known = {key: tag for key, tag in self.known.items() if not tag.storage.expired()}
            self.most = MOST + 2 * len(self.known)
        return x


TAGS = Tags()  # of all contexts: what a function caches in one is there in the next
