"""State dicts: which tensors keep one from being loaded into a network."""

from collections.abc import Mapping
from pathlib import Path

from torch import Tensor

from sslkit.errors import UserError
from sslkit.terminal.say import and_more

SHOWN = 3  # tensor names in a message


def mismatch(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> str:
    """What of `given` does not fit the network whose state dict is `own`, in words; empty: every tensor fits."""
    both = [name for name in own if name in given and not name.endswith("_extra_state")]  # which a module reads itself
    # float, complex or neither; other widths of floats are converted
    kinds = [{name: (of[name].is_floating_point(), of[name].is_complex()) for name in both} for of in (own, given)]
    faults = {
        "it lacks": [name for name in own if name not in given],
        "the network has no": [name for name in given if name not in own],
        "of another shape are": [name for name in both if own[name].shape != given[name].shape],
        "of another kind of number are": [name for name in both if kinds[0][name] != kinds[1][name]],
    }
    return "; ".join(f"{fault} {and_more(names, SHOWN)}" for fault, names in faults.items() if names)


def check_finite(state: Mapping[str, Tensor], path: str | Path) -> None:
    """Raises UserError, with the path and the tensors, for NaN or infinite weights."""
    floats = ((name, value) for name, value in state.items() if value.is_floating_point())
    broken = [name for name, value in floats if not value.float().isfinite().all()]  # 8-bit floats have no isfinite
    if broken:
        names = and_more(broken, SHOWN)
        raise UserError(f"{path} holds NaN or infinite weights ({names}): the training failed; train again")
