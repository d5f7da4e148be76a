"""The operations that calls become, which are what a GPU runs: checked, counted, and their results tagged."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from pretended_device.seen import is_called_by
from pretended_device.tags import TAGS

if TYPE_CHECKING:
    from pretended_device.device import Pretended

# They wait for a number of rows, or for an error code of the device.
WAITING = {
    "nonzero", "masked_select", "_unique2", "unique_dim", "unique_consecutive", "unique_dim_consecutive", "bincount",
    "_linalg_check_errors", "_linalg_eigh", "_linalg_svd", "linalg_eig", "linalg_lstsq", "equal",
}  # fmt: skip
INDEXING = {"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"}
# They run nothing on the device; they may be given tensors of two devices.
FREE = {"detach", "alias", "lift_fresh", "set_", "record_stream", "resize_", "_nested_tensor_size"}
MIXING = {"_has_compatible_shallow_copy_type", "_to_copy", "lift_fresh", "set_", "_local_scalar_dense"}
LOOSE = {"where", "masked_fill", "fill", "lerp"}  # take a number in a CPU tensor, as all pointwise operations do
NO_INTEGERS = {"mm", "bmm", "addmm", "baddbmm", "addmv", "mv", "dot", "convolution"}
Homes = list[torch.device | None]


class Operations(TorchDispatchMode):
    """gpu: is told what is seen."""

    def __init__(self, gpu: "Pretended") -> None:
        super().__init__()
        self.gpu = gpu

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = func._schema.name.rpartition("::")[2]
        given = tensors((*args, *kwargs.values()))
        homes = [TAGS.device(x) for x in given]
        device = next((home for home in homes if home is not None), None)
        self._check_arrived(name, given)
        if func.namespace == "c10d":
            self._check_collective(name, homes)
            return func(*args, **kwargs)
        if device is not None:
            self._check(func, name, given, homes, args, kwargs)
        out = func(*args, **kwargs)
        if device is not None:
            self._place(func, name, given, homes[0] if name in INDEXING | {"copy_"} else device, out)
        elif not given and self.gpu.inside is not None and isinstance(out, Tensor):
            TAGS.put(out, self.gpu.inside)
        return out

    def _place(self, func: Any, name: str, given: list[Tensor], device: torch.device | None, out: Any) -> None:
        """Tag the results, and count what ran. device: of the results."""
        if device is None or name == "_local_scalar_dense":
            return
        made = tensors((out,))
        for x in made:
            if TAGS.device(x) != device:
                TAGS.put(x, device)
        is_view = any(a.alias_info is not None and not a.alias_info.is_write for a in func._schema.arguments)
        if not is_view and name not in FREE:
            self.gpu.launch(name, sum(map(stored_bytes, given if func._schema.is_mutable else given + made)))

    def _check(self, func: Any, name: str, given: list[Tensor], homes: Homes, args: Any, kwargs: Any) -> None:
        gpu = self.gpu
        if name in WAITING:
            gpu.wait(name)
        if name == "_local_scalar_dense":
            gpu.wait(".item()")
        if func is torch.ops.aten.repeat_interleave.Tensor and kwargs.get("output_size") is None:
            gpu.wait("repeat_interleave of a tensor")
        if name in INDEXING:
            self._check_index(name, *args)
        elif name == "copy_":
            self._check_copy(*args, **kwargs)
        elif name not in MIXING and not _is_on_one(func, name, given, homes):
            places = [f"{tuple(x.shape)} on {home or 'cpu'}" for x, home in zip(given, homes, strict=True)]
            gpu.fault(f"{name} mixes devices: {', '.join(places)}")
        if name in NO_INTEGERS and not (given[0].is_floating_point() or given[0].is_complex()):
            gpu.fault(f"{name} of {given[0].dtype} does not exist on a GPU")
        if isinstance(kwargs.get("generator"), torch.Generator):
            gpu.fault(f"{name}: a CPU generator for a GPU tensor")

    def _check_index(
        self, name: str, x: Tensor, index: Sequence[Tensor | None], value: Any = None, adds: bool = False, *_: Any
    ) -> None:
        home, given = TAGS.device(x), [one for one in index if one is not None]
        is_number = isinstance(value, Tensor) and value.numel() == 1 and TAGS.device(value) is None
        is_fill = is_number and not adds and len(given) == 1  # x[mask] = 0 fills without counting the rows
        for one in given:
            place = TAGS.device(one)
            if one.dtype in (torch.bool, torch.uint8) and place and not is_fill:
                self.gpu.wait("a boolean mask")
            if home and not place and one.dim():
                self.gpu.wait("an index on the CPU, copied")
            if place and place != home:
                self.gpu.fault(f"{name} mixes devices: an index on {place}, a tensor on {home or 'cpu'}")
        if isinstance(value, Tensor) and value.dim() and TAGS.device(value) != home:
            place = TAGS.device(value) or "cpu"
            self.gpu.fault(f"{name} mixes devices: values on {place}, a tensor on {home or 'cpu'}")

    def _check_copy(self, to: Tensor, source: Tensor, non_blocking: bool = False) -> None:
        to_gpu, from_gpu = TAGS.device(to) is not None, TAGS.device(source) is not None
        if to_gpu == from_gpu or is_called_by(""):  # within gloo, in NCCL's place
            return
        host = TAGS.of(source if to_gpu else to)
        is_pinned = host is not None and host.pinned
        self.gpu.copied("copy_", source, to_gpu=to_gpu, later=non_blocking and is_pinned, pinned=is_pinned)
        if non_blocking and is_pinned and from_gpu:
            host.arrives = self.gpu.clock

    def _check_arrived(self, name: str, given: Iterable[Tensor]) -> None:
        tags = [tag for x in given if (tag := TAGS.of(x)) is not None]
        if name not in FREE and any(tag.arrives > self.gpu.finished for tag in tags):
            self.gpu.fault(f"{name} reads a copy that was not waited for")

    def _check_collective(self, name: str, homes: Homes) -> None:
        """NCCL moves GPU tensors only; Python's objects are brought to the right device by torch itself."""
        if not all(homes) and not is_called_by("object", "barrier"):
            self.gpu.fault(f"{name}: NCCL moves no CPU tensors")
        self.gpu.launch(name, 0)


def _is_on_one(func: Any, name: str, given: list[Tensor], homes: Homes) -> bool:
    """Return whether all tensors are on one device, but for numbers on the CPU where an operation takes them."""
    if len(set(homes) - {None}) > 1:
        return False
    off = [x for x, home in zip(given, homes, strict=True) if home is None]
    takes_numbers = torch.Tag.pointwise in func.tags or name.rstrip("_") in LOOSE or name.startswith("_f")
    return not off or (takes_numbers and all(x.dim() == 0 for x in off))


def tensors(given: Sequence[Any]) -> list[Tensor]:
    """The tensors among arguments, and in their lists."""
    found: list[Tensor] = []
    for x in given:
        if isinstance(x, Tensor):
            found.append(x)
        elif isinstance(x, (list, tuple)):
            found += tensors(x)
    return found


def stored_bytes(x: Tensor) -> int:
    """Bytes in memory: of a tensor that is expanded by stride 0 only what is stored."""
    count = x.element_size()
    for size, stride in zip(x.shape, x.stride(), strict=True):
        count *= size if stride else 1
    return count
