"""What torch has of a GPU beside its tensors: streams, events, memory, seeds, autocast."""

from types import ModuleType
from typing import TYPE_CHECKING, Any
from unittest import mock

import torch
from torch.nn.parallel import DistributedDataParallel

from pretended_device.tags import TAGS

if TYPE_CHECKING:
    from pretended_device.device import Pretended

LATE = 100  # launches after which a copy or an event of the device is taken to have ended by itself
GIB = 2**30


class Event:
    """An event of the device. To wait for one just recorded is to wait for the device."""

    def __init__(self, gpu: "Pretended") -> None:
        self.gpu, self.clock = gpu, 0

    def record(self, stream: Any = None) -> None:
        self.clock = self.gpu.clock

    def synchronize(self) -> None:
        if self.gpu.clock - self.clock < LATE:
            self.gpu.wait("an event just recorded")
        self.gpu.finished = max(self.gpu.finished, self.clock)

    def query(self) -> bool:
        self.gpu.finished = max(self.gpu.finished, self.clock)
        return True

    def elapsed_time(self, end: "Event") -> float:
        return 1.0

    def wait(self, stream: Any = None) -> None: ...


class Stream:
    """A stream, or a context of one or of a device."""

    cuda_stream = 0

    def __init__(self, gpu: "Pretended") -> None:
        self.gpu = gpu

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: Any) -> None: ...

    def synchronize(self) -> None:
        self.gpu.wait("synchronize()")

    def record_event(self, event: Event | None = None) -> Event:
        event = event or Event(self.gpu)
        event.record()
        return event

    def is_capturing(self) -> bool:
        return False

    def wait_stream(self, _: Any) -> None: ...

    def wait_event(self, _: Any) -> None: ...


def replacements(gpu: "Pretended") -> dict[ModuleType | type, dict[str, Any]]:
    """What is put into torch, by the module or class that has it."""
    streams = {name: lambda *_, **__: Stream(gpu) for name in ("current_stream", "default_stream", "Stream", "stream")}
    shared = {
        "is_available": lambda: True,
        "device_count": lambda: gpu.devices,
        "synchronize": lambda *_: gpu.wait("synchronize()"),
        "empty_cache": _nothing,
        "current_stream": streams["current_stream"],
    }
    event = {"Event": lambda *_, **__: Event(gpu)}
    return {
        torch.cuda: {**shared, **streams, **event, **_device(gpu), **_seeds(gpu)},
        torch.accelerator: {**shared, "current_accelerator": lambda *_, **__: torch.device("cuda")},
        torch: {"compile": _not_compiled, **event, **_autocast_states()},
        torch.amp.autocast_mode.autocast: {"__init__": _autocast_of_the_cpu()},
        torch.autograd: {"_engine_run_backward": _backward(gpu)},
        DistributedDataParallel: {name: _on_the_device(gpu, name) for name in ("__init__", "_pre_forward")},
        torch._C: {"_group_tensors_by_device_and_dtype": _groups()},
    }


def _nothing(*_: Any, **__: Any) -> None: ...


def _device(gpu: "Pretended") -> dict[str, Any]:
    def set_device(device: Any) -> None:
        gpu.current = gpu.named(device).index

    return {
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *_, **__: True,
        "current_device": lambda: gpu.current,
        "set_device": set_device,
        "device": lambda *_: Stream(gpu),
        "device_of": lambda *_: Stream(gpu),
        "get_device_name": lambda *_: "a pretended GPU",
        "get_device_capability": lambda *_: (9, 0),
        "get_device_properties": mock.MagicMock(),
        "mem_get_info": lambda *_: (60 * GIB, 80 * GIB),
        "memory_allocated": lambda *_: GIB,
        "max_memory_allocated": lambda *_: GIB,
        "memory_stats": lambda *_: {},
        "reset_peak_memory_stats": _nothing,
        "_lazy_init": _nothing,
        "_maybe_exchange_device": lambda *_: 0,
        "_exchange_device": lambda *_: 0,
    }


def _seeds(gpu: "Pretended") -> dict[str, Any]:
    """The state of the device's random numbers is the seed that it was given last."""

    def state(*_: Any) -> torch.Tensor:
        return torch.tensor([gpu.seed], dtype=torch.uint64).view(torch.uint8)

    def put_seed(seed: int) -> None:
        gpu.seed = int(seed) % 2**64

    def put_state(found: torch.Tensor, *_: Any) -> None:
        gpu.seed = int(found.view(torch.uint64)[0])

    return {
        "manual_seed": put_seed,
        "manual_seed_all": put_seed,
        "get_rng_state": state,
        "set_rng_state": put_state,
        "get_rng_state_all": lambda: [state()] * gpu.devices,
        "set_rng_state_all": lambda found: put_state(found[0]),
    }


def _not_compiled(function: Any = None, **_: Any) -> Any:
    return function if function is not None else lambda given: given


def _backward(gpu: "Pretended") -> Any:
    """The backward pass, in which devices are pretended to Python's functions too: those of autograd.Function."""
    run = torch.autograd._engine_run_backward

    def watched(*args: Any, **kwargs: Any) -> Any:
        with gpu.calls:
            return run(*args, **kwargs)

    return watched


def _on_the_device(gpu: "Pretended", name: str) -> Any:
    """A method of DDP, whose buckets are on the current device, where C++ makes them."""
    real = getattr(DistributedDataParallel, name)

    def made(*args: Any, **kwargs: Any) -> Any:
        with gpu.making(gpu.named("cuda")):
            return real(*args, **kwargs)

    return made


def _groups() -> Any:
    """Tensors by device and dtype, as fused and foreach functions ask for them."""
    real = torch._C._group_tensors_by_device_and_dtype

    def found(lists: Any, *args: Any) -> Any:
        groups = real(lists, *args)
        return {(TAGS.device(group[0][0][0]) or device, dtype): group for (device, dtype), group in groups.items()}

    return found


def _autocast_of_the_cpu() -> Any:
    """autocast("cuda") is that of the CPU, where the numbers are."""
    real = torch.amp.autocast_mode.autocast.__init__

    def init(self: Any, device_type: str, dtype: Any = None, enabled: bool = True, *args: Any, **kwargs: Any) -> None:
        if device_type == "cuda":
            device_type, dtype = "cpu", torch.bfloat16 if dtype is None and enabled else dtype
        real(self, device_type, dtype, enabled, *args, **kwargs)

    return init


def _autocast_states() -> dict[str, Any]:
    """Torch's questions about autocast on a GPU, asked about the CPU."""
    enabled, dtype = torch.is_autocast_enabled, torch.get_autocast_dtype
    return {
        "is_autocast_enabled": lambda device="cuda": enabled("cpu" if device == "cuda" else device),
        "get_autocast_dtype": lambda device="cuda": dtype("cpu" if device == "cuda" else device),
    }
