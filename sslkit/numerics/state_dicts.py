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


def interpolate(start: Mapping[str, Tensor], end: Mapping[str, Tensor], share: float) -> dict[str, Tensor]:
    """Return (1 - share) start + share end of two state dicts of one network; counts of steps are the end's.

    WiSE-FT (Wortsman et al. 2022, arXiv 2109.01903). share: from 0 to 1. Each tensor has the end's type; the sum is
    made in float64. Raises UserError, with the first tensor that differs, for weights of another network.
    """
    for name in dict.fromkeys([*end, *start]):
        if name not in start or name not in end:
            only = "end" if name in end else "start"
            raise UserError(f"start and end are weights of two networks: {name} is in the {only} alone")
        if start[name].shape != end[name].shape:
            shapes = " and ".join(str(tuple(state[name].shape)) for state in (start, end))
            raise UserError(f"start and end are weights of two networks: {name} has the shapes {shapes}")
    return {
        name: ((1 - share) * start[name].double() + share * value.double()).to(value.dtype)
        if value.is_floating_point()
        else value.clone()
        for name, value in end.items()
    }


def check_finite(state: Mapping[str, Tensor], path: str | Path) -> None:
    """Raises UserError, with the path and the tensors, for NaN or infinite weights."""
    floats = ((name, value) for name, value in state.items() if value.is_floating_point())
    broken = [name for name, value in floats if not value.float().isfinite().all()]  # 8-bit floats have no isfinite
    if broken:
        names = and_more(broken, SHOWN)
        raise UserError(f"{path} holds NaN or infinite weights ({names}): the training failed; train again")
