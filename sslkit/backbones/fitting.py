"""Fit the tensors of a weights file to a network without classifier: by their names, never by order or shape alone.

The network may stand anywhere in the file: below keys (`model`, `teacher`, `state_dict`, ...), below prefixes of the
names (`module.`, `backbone.`, `encoder_q.`, ...), or both. All of its tensors must be there; what is left out,
resampled or absent is said.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sslkit.backbones import namings
from sslkit.backbones.state_dicts import Reading, StateDict, choose_reading, state_dicts
from sslkit.backbones.weight_files import check_dense, kind
from sslkit.errors import UserError
from sslkit.numerics.state_dicts import check_finite
from sslkit.terminal.say import and_so_on

SHOWN = 4  # tensor names in a message
_COUNT = "num_batches_tracked"  # of a batch normalisation; files older than PyTorch 0.4.1 lack it, averages are floats
# First parts of names beside a backbone's: heads, what they learn with, and decoders.
_BESIDE = re.compile(
    r"((cls_|dino_|ibot_|lm_|proj_|projection_|prediction_|mlp_)?heads?\w*|fc|classifier\w*|linear\w*|last_layer|"
    r"proj|projectors?|projection|predictors?|pred|prototypes?\w*|queue\w*|decoder\w*|mask_token|criterion|\w*loss|"
    r"centers?|logit_scale|logit_bias|momentum_\w+|teacher\w*|student\w*|target_\w+)(\.|$)"
)
# Words of places in a file without any that belongs to self-supervised training, whose heads are no classifiers.
_SUPERVISED = {
    *("", "state_dict", "model", "module", "net", "network", "weights", "params", "model_state_dict"),
    *("ema", "model_ema", "state_dict_ema"),
}
_READERS: tuple[Callable[[StateDict, nn.Module], Iterator[Reading]], ...] = (
    namings.same_names,
    *(naming.readings for naming in namings.NAMINGS),
    namings.by_timm,
)


@dataclass(frozen=True)
class Match:
    """A file whose tensors were loaded into a network. line: on what was matched, left out and resampled.

    head: weight and bias of each classifier in the file, by their names in the network's library; none if the file is
    of self-supervised training.
    """

    head: Mapping[str, Tensor]
    line: str


@dataclass(frozen=True)
class Fit:
    """A reading beside a network. faults: names of the tensors that do not fit, by the fault."""

    reading: Reading
    tensors: Mapping[str, Tensor]
    faults: Mapping[str, Sequence[str]]
    resampled: tuple[str, ...] = ()


def fill(
    net: nn.Module,
    content: Any,
    *,
    network: str,
    head: Sequence[str] = (),
    part: str = "",
    file: str,
    remedy: str,
) -> Match:
    """Load the weights of a file into a network.

    content: of the file, at whatever depth, see `weight_files.read_content`. network: its name, in the line.
    head: names of the classification head in the network's library.
    part: the place in the file, or a word of it, such as `teacher`; needed where no rule says which of several to take.
    file, remedy: its name in messages, and their end.
    A position embedding of another grid of patches is resampled by timm.
    Raises UserError if any tensor of the network is missing, of another shape or kind, not plain or not finite; for one
    that is neither the network's nor of a head; and if several networks fit and no rule says which to take.
    """
    sources = state_dicts(content)
    if not sources:  # a whole module, a list, arrays of NumPy
        raise UserError(
            f"{file} is no state dict of tensors: it holds none by name, as torch.save(model.state_dict(), FILE) "
            f"writes them; {remedy}"
        )
    fit, others = _chosen(net, sources, head=head, part=part, file=file, remedy=remedy)
    check_dense(fit.tensors, file, network)
    check_finite(fit.tensors, file)
    net.load_state_dict(net.state_dict() | fit.tensors, strict=True)
    return Match(_classifier(fit.reading, head), _line(net, fit, others, network, file))


def _chosen(
    net: nn.Module, sources: Sequence[StateDict], *, head: Sequence[str], part: str, file: str, remedy: str
) -> tuple[Fit, list[Fit]]:
    """The tensors to load, and those of the file that would fit as well."""
    tried: list[Fit] = []
    for read in _READERS:
        readings = [reading for source in sources for reading in read(source, net)]
        tried += [_beside(net, reading, head) for reading in readings]
        good = [fit for fit in tried if not fit.faults]
        if asked := [fit for fit in good if fit.reading.is_part(part)]:
            first = choose_reading([fit.reading for fit in asked])
            if first is None:
                raise _ambiguous([fit.reading for fit in asked], file)
            return next(fit for fit in asked if fit.reading is first), [fit for fit in good if fit.reading is not first]
    raise _misfit(net, sources, tried, part, file, remedy)


def _beside(net: nn.Module, reading: Reading, head: Sequence[str]) -> Fit:
    """A reading beside a network; positions of another grid are resampled if nothing else is in the way."""
    state = net.state_dict()
    tensors = {name: value for name, value in reading.tensors.items() if name in state}
    faults = _faults(reading, state, head)
    if list(faults) != ["of another shape"] or set(faults["of another shape"]) != {"pos_embed"}:
        return Fit(reading, tensors, faults, _positions_of_timm(reading, tensors))
    positions, note = _resample_positions(net, tensors["pos_embed"])
    return Fit(reading, tensors | {"pos_embed": positions}, {}, (note,)) if note else Fit(reading, tensors, faults)


def _faults(reading: Reading, own: Mapping[str, Tensor], head: Sequence[str]) -> dict[str, list[str]]:
    """Names of the tensors that do not fit, by the fault; kinds without any are left out."""
    tensors = reading.tensors
    both = [name for name in own if name in tensors]
    heads = tuple(f"{name}." for name in head)
    faults = {
        "missing": [name for name in own if name not in tensors and not name.endswith(_COUNT)],
        "left over": [
            name for name in tensors if name not in own and not _BESIDE.match(name) and not name.startswith(heads)
        ],
        "of another shape": [name for name in both if tensors[name].shape != own[name].shape],
        "of another kind of number": [
            name for name in both if kind(tensors[name]) != kind(own[name]) and not name.endswith(_COUNT)
        ],
        "for patches of another size": [name for name in both if "patch_embed" in name and _is_new(reading, name)],
    }
    return {fault: names for fault, names in faults.items() if names}


def _is_new(reading: Reading, name: str) -> bool:
    """Return whether timm's conversion has computed other values than the file's for a tensor."""
    if name not in reading.used:
        sizes = {value.numel() for value in reading.source.tensors.values()}
        return reading.tensors[name].numel() not in sizes
    theirs, value = reading.source.tensors[reading.used[name]], reading.tensors[name]
    return theirs.numel() != value.numel() and theirs.untyped_storage().data_ptr() != value.untyped_storage().data_ptr()


def _positions_of_timm(reading: Reading, tensors: Mapping[str, Tensor]) -> tuple[str, ...]:
    """Notes on the positions that timm's conversion has resampled."""
    new = [name for name in tensors if "pos" in name and _is_new(reading, name)]
    return (f"{and_so_on(new, SHOWN)} to {tuple(tensors[new[0]].shape)}",) if new else ()


@torch.no_grad()
def _resample_positions(net: nn.Module, positions: Tensor) -> tuple[Tensor, str]:
    """The position embedding (1, prefix + L, F) for the network's grid, and a note; "" if it is for no square grid."""
    from timm.layers import resample_abs_pos_embed

    rows, columns = net.patch_embed.grid_size
    prefix = net.pos_embed.shape[1] - rows * columns
    side = isqrt(max(0, positions.shape[1] - prefix)) if positions.dim() == 3 else 0
    if not side or side**2 != positions.shape[1] - prefix or positions.shape[2] != net.pos_embed.shape[2]:
        return positions, ""
    fitted = resample_abs_pos_embed(positions.float(), [rows, columns], [side, side], num_prefix_tokens=prefix)
    return fitted, f"pos_embed {side}x{side} -> {rows}x{columns}"


def _classifier(reading: Reading, head: Sequence[str]) -> dict[str, Tensor]:
    names = [f"{name}.{kind}" for name in head for kind in ("weight", "bias")]
    is_one = set(reading.label.split(".")) <= _SUPERVISED and all(name in reading.tensors for name in names)
    return {name: reading.tensors[name] for name in names} if is_one else {}


def _line(net: nn.Module, fit: Fit, others: Sequence[Fit], network: str, file: str) -> str:
    """`resnet50: 318 of 320 tensors from FILE (state_dict, prefix module.); left out: fc.* (2)`."""
    reading, state = fit.reading, net.state_dict()
    also = dict.fromkeys(other.reading.label for other in others if not _overlap(reading, other.reading))
    told = "; ".join(filter(None, (reading.describe, f"not {', '.join(also)}" if also else "")))
    parts = [
        f"{network}: {len(fit.tensors)} of {len(reading.source.tensors)} tensors from {Path(file).name}"
        + (f" ({told})" if told else "")
    ]
    if left := _left_out(reading, state):
        parts.append(f"left out: {and_so_on(left, SHOWN)}")
    if fit.resampled:
        parts.append(f"resampled: {', '.join(fit.resampled)}")
    if absent := [name for name in state if name not in fit.tensors]:
        parts.append(f"not in the file: {_COUNT} ({len(absent)})")
    return "; ".join(parts)


def _overlap(one: Reading, other: Reading) -> bool:
    """Return whether two readings are of the same tensors of a file."""
    return one.source is other.source and bool(set(one.used.values()) & set(other.used.values()))


def _left_out(reading: Reading, own: Mapping[str, Tensor]) -> list[str]:
    """The tensors that are not the network's, by the first part of their names that tells: `fc.* (2)`."""
    used = set(reading.used.values())
    taken = {_group(name, reading.prefix) for name in used}
    groups = [_group(name, reading.prefix) for name in reading.source.tensors if name not in used]
    counts = Counter(_group(name, "") for name in reading.tensors if name not in own)
    counts += Counter(group for group in groups if group not in taken)
    return [f"{name} ({count})" for (_, name), count in counts.items()]


def _group(name: str, prefix: str) -> tuple[int, str]:
    """How far a name goes with a prefix, and its next part: ("module.queue", "module.encoder.") -> (1, "queue")."""
    parts, outer = name.split("."), prefix.split(".")[:-1]
    depth = 0
    while depth < min(len(parts) - 1, len(outer)) and parts[depth] == outer[depth]:
        depth += 1
    return depth, parts[depth] + (".*" if depth + 1 < len(parts) else "")


def _ambiguous(readings: Sequence[Reading], file: str) -> UserError:
    labels = list(dict.fromkeys(reading.label for reading in readings))
    return UserError(
        f"{file} holds several networks that fit, at {', '.join(labels)}: name one behind the file, "
        f"{Path(file).name}:{labels[0]}"
    )


def _misfit(
    net: nn.Module, sources: Sequence[StateDict], tried: Sequence[Fit], part: str, file: str, remedy: str
) -> UserError:
    """The error for a file without the network: what is wrong with the reading that comes closest."""
    asked = [fit for fit in tried if fit.reading.is_part(part)]
    if part and not asked:
        places = dict.fromkeys(fit.reading.label for fit in tried if not fit.faults)
        places = places or dict.fromkeys(".".join(source.place) or "." for source in sources)
        return UserError(f"{file} has no part {part}: it holds {and_so_on(list(places), SHOWN)}")
    state = net.state_dict()
    fit = max(asked, key=lambda fit: len(fit.tensors) - len(fit.faults.get("of another shape", ())), default=None)
    if fit is None or 2 * len(fit.tensors) < len(state):
        used = dict.fromkeys(fit.reading.used[name] for name in fit.tensors if name in fit.reading.used) if fit else {}
        theirs = [name for source in sources for name in source.tensors if name not in used]
        ours = [name for name in state if fit is None or name not in fit.tensors]
        return UserError(
            f"{file} does not fit the network: {len(state) - len(ours)} of its {len(state)} tensors are there by name; "
            f"the file has {and_so_on(theirs, SHOWN)}, the network {and_so_on(ours, SHOWN)}; {remedy}"
        )
    position = f" at {fit.reading.label}" if fit.reading.label != "." else ""
    return UserError(f"{file} does not fit the network{position}: {_in_words(fit, state)}; {remedy}")


def _in_words(fit: Fit, own: Mapping[str, Tensor]) -> str:
    """`2 missing: a, b; 1 of another shape: c (3, 3) instead of (7, 7)`."""
    parts = []
    for fault, names in fit.faults.items():
        shown = list(names)
        if fault == "of another shape":
            shown = [f"{name} {tuple(fit.tensors[name].shape)} instead of {tuple(own[name].shape)}" for name in names]
        parts.append(f"{len(names)} {fault}: {and_so_on(shown, SHOWN)}")
    return "; ".join(parts)
