"""FSDP2: weights, gradients and the optimiser's state in shares, one on each process (`trainer.strategy=fsdp`).

PyTorch's `fully_shard` gathers a block of a ViT just before it is used and drops it afterwards; everything else, the
heads, the teacher's and a predictor's too, is gathered for the whole step. Queues, centres and other buffers stay
whole on each process: they are small, and equal on all.

Between the epochs the weights are whole on all processes (`whole`), so that evaluation, checkpoints and entries are
those of one process, and a run goes on with any number of them.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from lightning_fabric.strategies import DDPStrategy
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from torch.utils._pytree import tree_map

from sslkit.runtime.distributed import blocks_apart


class Sharded(DDPStrategy):
    """Fabric's processes of DDP, with the module in shares."""

    def __init__(self) -> None:
        super().__init__()
        self._backward_sync_control = _SyncControl()

    def setup_module_and_optimizers(
        self, module: nn.Module, optimizers: list[torch.optim.Optimizer], scheduler: Any = None
    ) -> tuple[nn.Module, list[torch.optim.Optimizer], Any]:
        """Share the module, and let the optimisers, which have no state yet, move the shares."""
        share(module, optimizers, init_device_mesh(self.root_device.type, (self.world_size,)))
        return module, optimizers, scheduler

    @contextmanager
    def whole(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[dict[str, Any]]:
        """Whole weights to read, and the optimiser's whole state, of the first process alone.

        All processes enter and leave together.
        """
        state = _whole_state(optimizer.state_dict(), keep=self.is_global_zero)
        shares = _make_whole(module)
        try:
            yield state
        finally:
            for tensors, name, x in shares:
                tensors[name] = x

    def end(self, module: nn.Module) -> None:
        """Leave the weights whole, once all processes have ended their training."""
        _make_whole(module)

    def share_state(self, optimizer: torch.optim.Optimizer) -> None:
        """Put an optimiser's state, loaded whole, into the shares of its parameters."""
        for p, state in optimizer.state.items():
            for name, x in state.items():
                if isinstance(p, DTensor) and isinstance(x, Tensor) and x.shape == p.shape:
                    state[name] = distribute_tensor(x, p.device_mesh, p.placements, src_data_rank=None)


class _SyncControl:
    """Fabric asks it for a context in which gradients are summed up here, and not over the processes."""

    @contextmanager
    def no_backward_sync(self, module: FSDPModule, enabled: bool) -> Iterator[None]:
        module.set_requires_gradient_sync(not enabled)
        try:
            yield
        finally:
            module.set_requires_gradient_sync(True)


def share(module: nn.Module, optimizers: Sequence[torch.optim.Optimizer], mesh: DeviceMesh) -> None:
    """Put the module's parameters into shares, those of each stack's blocks but the last two block by block."""
    names = {id(p): name for name, p in module.named_parameters()}
    for block in blocks_apart(module):
        fully_shard(block, mesh=mesh)
    fully_shard(module, mesh=mesh)
    now = dict(module.named_parameters())
    for group in (group for optimizer in optimizers for group in optimizer.param_groups):
        group["params"] = [now[names[id(p)]] for p in group["params"]]


def _make_whole(module: nn.Module) -> list[tuple[dict, str, Any]]:
    """Replace parameters and the calls of FSDP; return the places, with what was there."""
    before: list[tuple[dict, str, Any]] = []
    full: dict[int, nn.Parameter] = {}
    for child in module.modules():
        for name, p in child._parameters.items():
            if isinstance(p, DTensor):
                if id(p) not in full:
                    full[id(p)] = nn.Parameter(p.detach().full_tensor(), p.requires_grad)
                before.append((child._parameters, name, p))
        if isinstance(child, FSDPModule):
            before += [
                (child.__dict__, name, child.__dict__[name]) for name in ("_forward_pre_hooks", "_forward_hooks")
            ]
    for tensors, name, x in before:
        tensors[name] = full[id(x)] if isinstance(x, DTensor) else OrderedDict()
    return before


def _whole_state(state: Any, keep: bool) -> Any:
    """A state dict with whole tensors on the CPU. keep: False: this process only takes part."""

    def gather(x: Any) -> Any:
        if not isinstance(x, DTensor):
            return x
        x = x.full_tensor()
        return x.cpu() if keep else None

    return tree_map(gather, state)
