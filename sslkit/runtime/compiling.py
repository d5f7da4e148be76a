"""Compiled networks of a training, and CUDA graphs of them: `trainer.compile`."""

import functools
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from sslkit.errors import UserError, first_line
from sslkit.runtime.loop import Hook, Loop

BACKEND = "inductor"
GRAPHS = "reduce-overhead"  # PyTorch's name of the mode with CUDA graphs, and ours
Function = Callable[..., Any]


def compile_function(function: Function, *, lengths_vary: bool = False, graphs: bool = False) -> Function:
    """A function of tensors compiled for their shapes, once for all steps.

    lengths_vary: the tensors (..., T, F) have another number of tokens T in each step: code for any T is compiled,
        where it would be compiled again for every new one. graphs: the kernels are started together, as a CUDA graph.
    """
    fast = torch.compile(function, backend=BACKEND, dynamic=False, mode=GRAPHS if graphs else None)
    if not lengths_vary:
        return fast

    @functools.wraps(function)
    def of_any_length(*given: Any, **more: Any) -> Any:
        for x in (*given, *more.values()):
            if isinstance(x, Tensor):
                torch._dynamo.maybe_mark_dynamic(x, x.dim() - 2)
        return fast(*given, **more)

    return of_any_length


class Compiled(Hook):
    """Puts compiled functions into the networks of a run at the start of each epoch, and removes them at its end.

    Evaluations run on batches of other sizes, each of which would be compiled again. The names of tensors do not
    change, so that checkpoints with and without it are the same.
    parts: the modules in the loop's module, and the names of their functions. plain: whether a batch runs uncompiled.
    lengths_vary, graphs: as for `compile_function`.
    """

    def __init__(
        self,
        parts: Callable[[nn.Module], Iterable[tuple[nn.Module, str]]],
        plain: Callable[[], bool],
        *,
        lengths_vary: bool = False,
        graphs: bool = False,
    ) -> None:
        self.parts, self.plain, self.lengths_vary, self.graphs = parts, plain, lengths_vary, graphs
        self.functions: list[tuple[nn.Module, str, Function]] = []

    def epoch_begin(self, loop: Loop) -> None:
        if not self.functions:
            how = {"lengths_vary": self.lengths_vary, "graphs": self.graphs}
            self.functions = [
                (owner, name, compile_function(getattr(owner, name), **how))
                for owner, name in dict.fromkeys(self.parts(loop.module))
            ]
        self._insert()

    def batch_begin(self, loop: Loop) -> None:
        if self.graphs:
            torch.compiler.cudagraph_mark_step_begin()  # the memory of the last step's results is used again
        if self.plain():
            self._remove()

    def batch_end(self, loop: Loop, outputs: dict[str, Any], batch: Any) -> None:
        if self.graphs:  # other hooks keep them until later steps
            outputs |= {name: value.clone() for name, value in outputs.items() if isinstance(value, Tensor)}
        self._insert()

    def epoch_end(self, loop: Loop) -> None:
        self._remove()

    def _insert(self) -> None:
        for owner, name, function in self.functions:
            setattr(owner, name, function)

    def _remove(self) -> None:
        for owner, name, _ in self.functions:
            delattr(owner, name)


def no_graphs(device: torch.device, *, ranks: int, accumulate: int, recomputed: bool, lengths_vary: bool) -> str:
    """Why a training cannot use CUDA graphs, "" if it can. ranks: processes. recomputed: whether activations are.

    A graph writes its results to the same place in every run, so that nothing of one batch may be needed after the
    next one has begun, and it is made for one shape.
    """
    if device.type != "cuda":
        return f"there are none on {device.type}"
    if ranks > 1:
        return f"{ranks} processes share the statistics of a batch within their networks"
    if accumulate > 1:
        return f"trainer.accumulate={accumulate} keeps gradients from batch to batch"
    if recomputed:
        return "trainer.checkpoint_activations=true runs a network once more within its backward pass"
    return "the objective's masks leave another number of patches in each step" if lengths_vary else ""


def check_compiler(device: torch.device) -> None:
    """Compile a small function. Raises UserError where that fails, as without a C++ compiler."""
    from torch._inductor import config

    try:
        with config.patch(force_disable_caches=True), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of caches that are not used
            torch.compile(lambda x: (2 * x + 1).sin(), backend=BACKEND)(torch.ones(8, device=device))
    except Exception as error:  # of torch's compiler, of triton's, or of the system's
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [first_line(error)]
        raise UserError(
            f"trainer.compile=true cannot compile here ({lines[0]}): install a C++ compiler such as g++, or "
            "leave it out"
        ) from error
