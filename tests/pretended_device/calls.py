"""Calls as they are written in Python: a tensor's device, its moves, and what a GPU tensor cannot do."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from pretended_device.tags import TAGS

if TYPE_CHECKING:
    from pretended_device.device import Pretended

CPU = torch.device("cpu")
COPYING = {"tensor", "as_tensor", "asarray", "new_tensor"}  # functions that copy their data to device=


class Calls(TorchFunctionMode):
    """gpu: is told what is seen."""

    def __init__(self, gpu: "Pretended") -> None:
        super().__init__()
        self.gpu = gpu
        home = gpu.home
        self.special: dict[Any, Callable[..., Any]] = {
            Tensor.device.__get__: lambda x: home(x) or Tensor.device.__get__(x),
            Tensor.is_cuda.__get__: lambda x: home(x) is not None,
            Tensor.is_cpu.__get__: lambda x: home(x) is None and Tensor.is_cpu.__get__(x),
            Tensor.get_device: lambda x: -1 if home(x) is None else home(x).index,
            Tensor.is_pinned: lambda x, *_: (tag := TAGS.of(x)) is not None and tag.pinned,
            Tensor.to: self._to,
            Tensor.cuda: self._cuda,
            Tensor.cpu: lambda x, **_: self._moved(x, CPU),
            Tensor.pin_memory: self._pinned,
            Tensor.numpy: self._numpy,
            Tensor.__array__: self._array,
            Tensor.tolist: self._tolist,
            Tensor.__repr__: self._shown,
            Tensor.__deepcopy__: self._deepcopy,
            Tensor.__setitem__: self._set_item,
            Tensor.record_stream: lambda *_: None,
        }

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        if func in self.special:
            return self.special[func](*args, **kwargs)
        if kwargs.pop("pin_memory", None):
            return TAGS.put(self.__torch_function__(func, types, args, kwargs), pinned=True)
        if kwargs.get("device") is not None:
            return self._made(func, self.gpu.named(kwargs["device"]), args, kwargs)
        home = self._first_home(args, kwargs)
        if func is Tensor.new_tensor and home is not None:
            return self._made(func, home, args, kwargs)
        before, self.gpu.inside = self.gpu.inside, home  # as `making`, which takes longer
        try:
            return func(*args, **kwargs)
        finally:
            self.gpu.inside = before

    def _first_home(self, args: Any, kwargs: dict[str, Any]) -> torch.device | None:
        given = [x for one in (*args, *kwargs.values()) for x in (one if isinstance(one, (list, tuple)) else (one,))]
        return next((home for x in given if (home := TAGS.device(x)) is not None), None)

    def _made(self, func: Any, device: torch.device, args: Any, kwargs: dict[str, Any]) -> Any:
        """Call a function that makes a tensor on a device; a copy of data to a GPU, or from it, is waited for."""
        is_gpu, named = device.type == "cuda", getattr(func, "__name__", str(func))
        if is_gpu and isinstance(kwargs.get("generator"), torch.Generator):
            self.gpu.fault(f"{named}: a CPU generator for a GPU tensor")
        source = next((x for x in args[named == "new_tensor" :] if isinstance(x, Tensor)), None)
        if named in COPYING and TAGS.device(source) != (device if is_gpu else None):
            self.gpu.wait(f"{named}(...) on {device}, copied")
        with self.gpu.making(None):
            out = func(*args, **{**kwargs, "device": CPU if is_gpu else device})
            if isinstance(out, Tensor) and source is not None and out.data_ptr() == source.data_ptr():
                out = out.clone()
        return TAGS.put(out, device if is_gpu else None) if isinstance(out, Tensor) and device.type != "meta" else out

    def _to(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        kwargs.pop("copy", None)
        form = kwargs.pop("memory_format", None)
        if args and isinstance(args[0], Tensor):
            return self._moved(x, TAGS.device(args[0]) or CPU, args[0].dtype, kwargs.get("non_blocking", False))
        if args and type(args[0]) is int:
            args = (self.gpu.named(args[0]), *args[1:])
        device, dtype, later, _ = torch._C._nn._parse_to(*args, **kwargs)
        return self._moved(x, device, dtype, later, form)

    def _cuda(self, x: Tensor, device: Any = None, non_blocking: bool = False, **_: Any) -> Tensor:
        return self._moved(x, self.gpu.named(device), later=non_blocking)

    def _moved(
        self,
        x: Tensor,
        device: torch.device | None,
        dtype: torch.dtype | None = None,
        later: bool = False,
        form: torch.memory_format | None = None,
    ) -> Tensor:
        """x on a device and of a dtype; None leaves either as it is."""
        gpu, home, how = (
            self.gpu,
            TAGS.device(x),
            {"dtype": dtype or x.dtype, "memory_format": form or torch.preserve_format},
        )
        if device is not None and device.type == "meta":
            return x.to(device, how["dtype"])
        target = gpu.named(device) if device is not None and device.type == "cuda" else None
        if device is None or target == home:
            return x.to(**how)
        tag = TAGS.of(x)
        is_pinned = later and (target is None or (tag is not None and tag.pinned))  # a later copy to the CPU is pinned
        if target is None or home is None:
            gpu.copied(".to", x, to_gpu=target is not None, later=is_pinned, pinned=tag is not None and tag.pinned)
        with gpu.making(None):
            out = x.to(**how, copy=True)
        if target is not None:
            return TAGS.put(out, target)
        return TAGS.put(out, pinned=later, arrives=gpu.clock if later else 0)

    def _pinned(self, x: Tensor, device: Any = None) -> Tensor:
        if TAGS.device(x) is not None:
            self.gpu.fault("pin_memory of a GPU tensor")
        return TAGS.put(x.clone(), pinned=True)

    def _numpy(self, x: Tensor, **kwargs: Any) -> Any:
        self._read(x, ".numpy()")
        return Tensor.numpy(x, **kwargs)

    def _array(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        self._read(x, "numpy.asarray()")
        return Tensor.__array__(x, *args, **kwargs)

    def _read(self, x: Tensor, what: str) -> None:
        tag = TAGS.of(x)
        if tag is not None and tag.device is not None:
            self.gpu.fault(f"{what} of a GPU tensor")
        elif tag is not None and tag.arrives > self.gpu.finished:
            self.gpu.fault(f"{what} reads a copy that was not waited for")

    def _tolist(self, x: Tensor) -> Any:
        if TAGS.device(x) is None:
            self._read(x, ".tolist()")
        else:
            self.gpu.wait(".tolist()")
        return Tensor.tolist(x)

    def _shown(self, x: Tensor, **kwargs: Any) -> str:
        if TAGS.device(x) is not None:
            self.gpu.wait("printed")
        return Tensor.__repr__(x, **kwargs)

    def _deepcopy(self, x: Tensor, memo: Any) -> Tensor:
        return TAGS.put(Tensor.__deepcopy__(x, memo), TAGS.device(x))

    def _set_item(self, x: Tensor, index: Any, value: Any) -> None:
        with self.gpu.making(TAGS.device(x) if isinstance(value, Tensor) else None):  # a number stays on the CPU
            Tensor.__setitem__(x, index, value)
