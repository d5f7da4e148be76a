"""Published timm models, with weights that timm downloads or from a local file; no pickle is executed."""

import math
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from sslkit.errors import UserError, first_line
from sslkit.regular_files import regular

_ZIP = b"PK\x03\x04"  # how the files of torch begin; those of versions before 1.6 have no checksums


def timm_network(name: str, weights: str = "", *, where: str, local: str, head: bool = False) -> tuple[nn.Module, dict]:
    """A timm model with its weights, and timm's preprocessing config of its images.

    name: timm's name, with or without the tag of its weights. weights: a local state dict, matched by name or by
    position; "": downloaded by timm.
    where, local: the network's name, and how to give a local file for it, in messages.
    head: keep the classifier; else the network gives its pooled features.
    Raises UserError for an unknown name, weights that cannot be downloaded, or a file that does not fit.
    """
    import timm

    if not timm.is_model(name):
        raise no_model(where, name)
    with torch.random.fork_rng(devices=[]):
        network = _local(name, weights, where) if weights else _downloaded(name, where, local)
    config = timm.data.resolve_model_data_config(network)
    if not head:
        network.reset_classifier(0)
    return network.eval(), config


def no_model(where: str, name: str) -> UserError:
    """The error for a name that timm does not know."""
    import timm

    close = get_close_matches(name, timm.list_models())
    hint = f"did you mean {' or '.join(map(repr, close))}? " if close else ""
    return UserError(f"{where}: timm has no model {name!r}: {hint}timm.list_models() lists all")


def unobtainable(where: str, error: Exception, remedy: str) -> UserError:
    """The error for weights that a library could not get; error: of any class."""
    return UserError(f"cannot get the weights of {where} ({first_line(error)}); {remedy}")


def read_file(path: str | Path, where: str, *, allowed: Sequence[Any] = ()) -> Any:
    """The content of a .safetensors or torch file, on the CPU.

    allowed: classes that a torch file may hold besides tensors and plain values, in the form of
    `torch.serialization.safe_globals`; a file with any other class is refused, as loading it could run its code.
    where: the network's name in messages. Raises UserError if the file is missing or cannot be read, and if its content
    does not have the checksums that torch wrote.
    """
    if not Path(path).is_file():
        raise UserError(f"{where}: there is no file {path}")
    try:
        if str(path).endswith(".safetensors"):
            from safetensors.torch import load_file

            return load_file(path)
        check_records(path)
        with torch.serialization.safe_globals(list(allowed)) if allowed else nullcontext():
            return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle, zip and safetensors each raise their own
        raise UserError(f"{where}: {path} is no state dict of tensors: {first_line(error)}") from error


def check_records(path: str | Path) -> None:
    """Raises ValueError if the content of a torch file has changed: `torch.load` does not compare its checksums.

    Also for a record that unpacks to more than the file, which torch does not write. Raises OSError as `regular` does.
    """
    with open(regular(path), "rb") as file:
        if file.read(len(_ZIP)) != _ZIP:
            return
        with zipfile.ZipFile(file) as records:
            for record in records.infolist():
                if record.file_size > os.path.getsize(path):
                    raise ValueError("a record of it unpacks to more than the whole file")
                if record.CRC:  # 0: saved after torch.serialization.set_crc32_options(False)
                    _read_through(records, record)


def _read_through(records: zipfile.ZipFile, record: zipfile.ZipInfo) -> None:
    try:
        with records.open(record) as content:
            while content.read(1 << 20):
                pass
    except (zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"it is damaged ({first_line(error)}): copy it again") from error


def check_dense(state: Mapping[str, Any], path: str | Path, where: str) -> None:
    """Raises UserError for a tensor that does not have a number of its own in the file for each of its elements."""
    for name, value in state.items():
        if isinstance(value, Tensor) and not _is_dense(value):
            raise UserError(
                f"{where}: {path} holds {name}, which is sparse, quantized, nested, expanded or without values: save "
                "plain tensors, {name: value.to_dense().clone()}"
            )


def _is_dense(value: Tensor) -> bool:
    if value.layout != torch.strided or value.is_meta or value.is_quantized or value.is_nested:
        return False
    return value.numel() * value.element_size() <= value.untyped_storage().nbytes()


def read_weights(path: str | Path, where: str) -> dict[str, Tensor]:
    """The state dict of a .safetensors or torch file. Raises UserError if it holds anything but dense tensors."""
    state = read_file(path, where)
    state = state.get("state_dict", state) if isinstance(state, dict) else state
    if not isinstance(state, dict) or not all(
        isinstance(key, str) and isinstance(value, Tensor) for key, value in state.items()
    ):
        raise UserError(f"{where}: {path} is no state dict of tensors")
    check_dense(state, path, where)
    return state


@torch.no_grad()
def take_classifier(network: nn.Module, input_size: Sequence[int]) -> nn.Linear | None:
    """Remove and return a timm network's classifier, so that the network returns its pooled features.

    None if it has none, or one that is not a linear layer on exactly these features: its output is compared with the
    whole network's logits, on one image of input_size (C, H, W).
    """
    classifier = network.get_classifier()
    image = torch.linspace(-2, 2, math.prod(input_size)).view(1, *input_size)
    logits = network.eval()(image) if isinstance(classifier, nn.Linear) else None
    network.reset_classifier(0)
    if logits is None:
        return None
    features = network.eval()(image)
    if features.shape != (1, classifier.in_features):
        return None
    apart = (classifier(features) - logits).abs().max()
    return classifier.eval() if apart <= 1e-4 * logits.abs().max() else None


def _downloaded(name: str, where: str, local: str) -> nn.Module:
    import timm

    try:
        return timm.create_model(name, pretrained=True)
    except Exception as error:  # timm, huggingface_hub and urllib each raise their own when offline
        raise unobtainable(where, error, f"give a local file: {local}") from error


def _local(name: str, path: str, where: str) -> nn.Module:
    """The timm model with the file's weights: by name if all names agree, otherwise by position if all shapes do.

    A file without the classifier is tried on the model without one.
    """
    import timm

    given = read_weights(path, where)
    models = [timm.create_model(name, pretrained=False), timm.create_model(name, pretrained=False, num_classes=0)]
    for same in (_same_names, _same_shapes):
        for model in models:
            own = model.state_dict()
            if same(given, own):
                values: dict[str, Any] = given if same is _same_names else dict(zip(own, given.values(), strict=True))
                model.load_state_dict(values, strict=True)
                return model
    raise UserError(
        f"{where}: the {len(given)} tensors of {path} fit timm's {name} ({len(models[0].state_dict())} tensors) "
        "neither by name nor by position"
    )


def _same_names(given: dict[str, Tensor], own: dict[str, Tensor]) -> bool:
    return given.keys() == own.keys() and all(given[key].shape == own[key].shape for key in own)


def _same_shapes(given: dict[str, Tensor], own: dict[str, Tensor]) -> bool:
    return [value.shape for value in given.values()] == [value.shape for value in own.values()]
