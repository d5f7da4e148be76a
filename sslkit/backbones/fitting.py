"""Fit the tensors of a weights file to a network without classifier, and name what was left out."""

from collections.abc import Mapping, Sequence
from math import isqrt

import torch
from torch import Tensor, nn

from sslkit.errors import UserError

SHOWN = 4  # tensor names in a message


def fill(net: nn.Module, state: Mapping[str, Tensor], *, head: Sequence[str] = (), file: str, remedy: str) -> list[str]:
    """Load weights into a network, and return notes on what was changed or left out, a line each.

    state: matched by name; if the names are of another library, by position, provided that all shapes and the
        last words of all names (weight, running_mean, ...) agree.
    head: names of the classification head in the network's library; its tensors may be in `state` or not.
    A position embedding of another grid of patches is resampled by timm. file, remedy: for messages.
    Raises UserError, with the tensors and the remedy, for any other that is missing, left over or of another shape.
    """
    own = net.state_dict()
    given, notes = _without_head(state, own, tuple(f"{name}." for name in head))
    faults = _faults(given, own)
    if faults and (placed := _by_position(state, own)):
        over = list(state)[len(own) :]
        given, notes = placed, ["matched by position, as the names are of another library"]
        notes += [f"left out the classification head ({_listed(over)})"] if over else []
        faults = _faults(given, own)
    if list(faults) == ["of another shape"] and set(faults["of another shape"]) == {"pos_embed"}:
        given["pos_embed"], note = _resampled(net, given["pos_embed"], file)
        notes.append(note)
        faults = _faults(given, own)
    if faults:
        raise UserError(f"{file} does not fit the network: {_in_words(faults, given, own)}; {remedy}")
    net.load_state_dict(given, strict=True)
    return notes


def _without_head(
    state: Mapping[str, Tensor], own: Mapping[str, Tensor], head: tuple[str, ...]
) -> tuple[dict[str, Tensor], list[str]]:
    """The tensors that are not the classification head's, and a note that names those of the head."""
    over = [name for name in state if head and name.startswith(head) and name not in own]
    given = {name: value for name, value in state.items() if name not in over}
    if over:
        return given, [f"left out the classification head ({_listed(over)})"]
    missing = [f"{name}{part}" for name in head for part in ("weight", "bias")]
    return given, [f"without a classification head ({_listed(missing)})"] if missing else []


def _by_position(state: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, Tensor] | None:
    """The tensors under the network's names if kinds and shapes agree in order; a classifier's may follow."""
    given = [(name.rpartition(".")[2], value.shape) for name, value in state.items()]
    wanted = [(name.rpartition(".")[2], value.shape) for name, value in own.items()]
    rest = given[len(wanted) :]
    is_classifier = [(name, len(shape)) for name, shape in rest] in ([], [("weight", 2), ("bias", 1)])
    if given[: len(wanted)] != wanted or not is_classifier:
        return None
    return dict(zip(own, state.values(), strict=False))


def _faults(given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> dict[str, list[str]]:
    """Names of the tensors that do not fit, by the fault; kinds without any are left out."""
    both = [name for name in own if name in given]
    found = {
        "missing": [name for name in own if name not in given],
        "left over": [name for name in given if name not in own],
        "of another shape": [name for name in both if given[name].shape != own[name].shape],
        "of another kind of number": [
            name for name in both if given[name].is_floating_point() != own[name].is_floating_point()
        ],
    }
    return {fault: names for fault, names in found.items() if names}


@torch.no_grad()
def _resampled(net: nn.Module, positions: Tensor, file: str) -> tuple[Tensor, str]:
    """The position embedding (1, prefix + L, F) for the network's grid, and a note. Raises UserError for no square."""
    from timm.layers import resample_abs_pos_embed

    rows, columns = net.patch_embed.grid_size
    prefix = net.pos_embed.shape[1] - rows * columns
    side = isqrt(max(0, positions.shape[1] - prefix)) if positions.dim() == 3 else 0
    if not side or side**2 != positions.shape[1] - prefix or positions.shape[2] != net.pos_embed.shape[2]:
        raise UserError(
            f"{file} does not fit the network: pos_embed {tuple(positions.shape)} is not one for a square grid of "
            f"patches of width {net.pos_embed.shape[2]}; take the weights of this network"
        )
    fitted = resample_abs_pos_embed(positions.float(), [rows, columns], [side, side], num_prefix_tokens=prefix)
    return fitted, f"positions resampled from {side} x {side} to {rows} x {columns} patches"


def _in_words(faults: Mapping[str, list[str]], given: Mapping[str, Tensor], own: Mapping[str, Tensor]) -> str:
    """`2 missing: a, b; 1 of another shape: c (3, 3) instead of (7, 7)`."""
    parts = []
    for fault, names in faults.items():
        shown = names
        if fault == "of another shape":
            shown = [f"{name} {tuple(given[name].shape)} instead of {tuple(own[name].shape)}" for name in names]
        parts.append(f"{len(names)} {fault}: {_listed(shown)}")
    return "; ".join(parts)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names[:SHOWN]) + (", ..." if len(names) > SHOWN else "")
