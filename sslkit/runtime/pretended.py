"""A device of shapes without numbers, on which a training step is counted: live bytes, FLOPs, bytes moved.

Tensors on `DEVICE` are PyTorch's fake ones: each operation gives the shape, type and layout of its result, and nothing
is computed or allocated, so that a step of any size takes seconds. Tensors of the host stay real, and so does what is
computed from them alone, such as masks drawn on the CPU: their numbers decide shapes.

Kernels that a GPU has and a CPU does not are put in their place: fused attention, and autocast's float32 operations.
"""

import weakref
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor, FakeTensorMode
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_leaves, tree_map, tree_unflatten
from torch.utils.flop_counter import flop_registry
from torch.utils.weak import WeakIdKeyDictionary

DEVICE = torch.device(
    "cpu", 1
)  # a second "CPU": autograd runs on it without a driver, and no tensor is there by chance
BLOCK = 512  # bytes, to which CUDA's allocator rounds up
KNOWN = 2**22  # elements of a tensor on the device whose numbers are kept beside it
WIDE = {F.layer_norm, F.group_norm, F.softmax, torch.softmax, Tensor.softmax, F.log_softmax, torch.log_softmax}


@dataclass(frozen=True)
class Work:
    """One kernel: its floating-point operations, the bytes that it reads and writes, and its type."""

    flops: int
    bytes: int
    dtype: torch.dtype


class Counter(TorchDispatchMode):
    """Runs what is on `DEVICE` without numbers, and counts it.

    live, peak: bytes of the storages now, and the most so far. work: the kernels so far. guesses: how often the step
    asked for a number that only a computation would give: it got 1.
    """

    def __init__(self) -> None:
        super().__init__()
        self.fake = FakeTensorMode(allow_non_fake_inputs=True)
        self.live = self.peak = self.guesses = 0
        self.work: list[Work] = []
        self._storages: dict[int, int] = {}
        self._known = WeakIdKeyDictionary()  # the numbers of small tensors that came from the host

    def restart(self) -> None:
        """Count from here on: the peak is what is live now."""
        self.peak, self.work = self.live, []

    def __torch_dispatch__(self, func: Any, types: Any, args: Sequence = (), kwargs: Mapping | None = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        pretended = [x for x in tensors if isinstance(x, FakeTensor)]
        to_device = kwargs.get("device") is not None and torch.device(kwargs["device"]) == DEVICE
        if not (pretended or to_device):
            return func(*args, **kwargs)
        numbers = self._numbers(func, tensors, args, kwargs)
        if func is torch.ops.aten._local_scalar_dense.default:
            self.guesses += numbers is None
            return torch.ones((), dtype=tensors[0].dtype).item() if numbers is None else numbers
        try:
            # called and not entered: entering asks each time for GPUs
            out = self.fake.__torch_dispatch__(func, types, args, kwargs)
        except DynamicOutputShapeException:
            if numbers is None:
                raise
            out = tree_map(self._place, numbers)
        self._keep(func, pretended, out, numbers)
        self._count(func, tensors, out, args, kwargs)
        return out

    def _numbers(self, func: Any, given: Sequence[Tensor], args: Sequence, kwargs: dict[str, Any]) -> Any:
        """The numbers of the result, if those of all its inputs are known and few; else None."""
        real = [self._known.get(x) if isinstance(x, FakeTensor) else x for x in given]
        few = all(x is not None and x.numel() <= KNOWN for x in real)
        if not (given and few) or func._schema.is_mutable or torch.Tag.nondeterministic_seeded in func.tags:
            return None
        leaves, spec = tree_flatten((args, kwargs))
        rest = iter(real)
        args, kwargs = tree_unflatten([next(rest) if isinstance(x, Tensor) else x for x in leaves], spec)
        if kwargs.get("device") is not None:
            kwargs["device"] = torch.device("cpu")
        return func(*args, **kwargs)

    def _place(self, value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        with self.fake:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=DEVICE)

    def _keep(self, func: Any, pretended: Sequence[Tensor], out: Any, numbers: Any) -> None:
        """Remember the numbers of a result; those of tensors that are written to are not known any more."""
        if func._schema.is_mutable:
            for x in pretended:
                self._known.pop(x, None)
        elif numbers is not None:
            for result, value in zip(tree_leaves(out), tree_leaves(numbers), strict=True):
                if isinstance(result, FakeTensor):
                    self._known[result] = value

    def _count(self, func: Any, given: Sequence[Tensor], out: Any, args: Sequence, kwargs: dict[str, Any]) -> None:
        made = [x for x in tree_leaves(out) if isinstance(x, FakeTensor)]
        for x in made:
            self._hold(x.untyped_storage())
        packet, changes = func._overloadpacket, func._schema.is_mutable
        sources = {x.untyped_storage()._cdata for x in given}
        fresh = [x for x in made if changes or x.untyped_storage()._cdata not in sources]
        if not fresh or "empty" in packet.__name__:
            return  # a view, or room without content
        flops = flop_registry[packet](*args, **kwargs, out_val=out) if packet in flop_registry else 0
        kinds = [x.dtype for x in given if x.is_floating_point()] or [fresh[0].dtype]
        moved = sum(map(_bytes, given)) + sum(map(_bytes, fresh))
        self.work.append(Work(flops, moved, kinds[0]))

    def _hold(self, storage: torch.UntypedStorage) -> None:
        """Count a storage until the last tensor on it is gone."""
        key = storage._cdata
        if key in self._storages:
            return
        self._storages[key] = -(-storage.nbytes() // BLOCK) * BLOCK
        self.live += self._storages[key]
        self.peak = max(self.peak, self.live)
        weakref.finalize(storage, self._release, key)

    def _release(self, key: int) -> None:
        self.live -= self._storages.pop(key)


def _bytes(x: Tensor) -> int:
    """Bytes of a tensor in memory; an expanded one has those of its storage."""
    return min(x.numel() * x.element_size(), x.untyped_storage().nbytes())


class _AsOnGPU(TorchFunctionMode):
    """The operations that CUDA's autocast computes in float32 and the CPU's does not."""

    def __torch_function__(self, func: Any, types: Any, args: Sequence = (), kwargs: Mapping | None = None) -> Any:
        kwargs = kwargs or {}
        if func is Tensor.numpy and isinstance(args[0], FakeTensor):
            return torch.rand(args[0].shape).to(args[0].dtype).numpy()  # any numbers: without ties
        if func in WIDE and args[0].device == DEVICE and torch.is_autocast_enabled("cpu"):
            args = (args[0].float(), *args[1:])
        return func(*args, **kwargs)


def _attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """The flash kernel for half precision without a mask, else the memory-efficient one; both save q, k, v, out."""
    if torch.is_autocast_enabled("cpu"):
        q, k, v = (x.to(torch.get_autocast_dtype("cpu")) for x in (q, k, v))
    if q.dtype is torch.float32 or attn_mask is not None:
        aten = torch.ops.aten._scaled_dot_product_efficient_attention
        return aten(q, k, v, attn_mask, True, dropout_p, is_causal, scale=scale)[0]
    aten = torch.ops.aten._scaled_dot_product_flash_attention
    return aten(q, k, v, dropout_p, is_causal, False, scale=scale)[0]


@contextmanager
def counting() -> Iterator[Counter]:
    """Count what is done on `DEVICE` meanwhile; the random state of the host is the caller's again afterwards."""
    counter, original = Counter(), F.scaled_dot_product_attention

    def attention(q: Tensor, *given: Any, **more: Any) -> Tensor:
        return (_attention if q.device == DEVICE else original)(q, *given, **more)

    F.scaled_dot_product_attention = attention  # a mode would not hold in the backward pass, for recomputed blocks
    try:
        with torch.random.fork_rng(devices=[]), counter, _AsOnGPU():
            yield counter
    finally:
        F.scaled_dot_product_attention = original


def place_on_device(module: nn.Module) -> nn.Module:
    """Move a module to `DEVICE`, in place; parameters that are shared stay shared."""
    moved: dict[int, tuple[Tensor, Tensor]] = {}

    def move(x: Tensor) -> Tensor:
        with torch.no_grad():
            new = torch.empty_strided(x.shape, x.stride(), dtype=x.dtype, device=DEVICE)
        return nn.Parameter(new, x.requires_grad) if isinstance(x, nn.Parameter) else new

    for child in module.modules():
        for tensors in (child._parameters, child._buffers):
            for name, x in tensors.items():
                if x is not None and id(x) not in moved:
                    moved[id(x)] = x, move(x)
                if x is not None:
                    tensors[name] = moved[id(x)][1]
    return module
