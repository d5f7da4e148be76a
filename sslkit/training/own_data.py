"""Data that a Python program gives as an object: what the settings say in its place."""

from collections.abc import Mapping
from typing import Any

from torch.utils.data import Dataset

from sslkit.data.images import Images
from sslkit.data.sources.own_dataset import PREFIX

_KEYS = ("data", "data.source")


def named(config: Mapping[str, Any]) -> tuple[dict[str, Any], Dataset | None]:
    """The settings with the name of a Dataset or Images in its place, and that object; None if the data is a name."""
    config = dict(config)
    for key in _KEYS:
        if isinstance(config.get(key), Dataset):
            own = config[key]
            return {**config, key: _name(own)}, own
    inner = config.get("data")
    if isinstance(inner, Mapping) and isinstance(inner.get("source"), Dataset):
        own = inner["source"]
        return {**config, "data": {**inner, "source": _name(own)}}, own
    return config, None


def _name(own: Dataset) -> str:
    if isinstance(own, Images):
        return f"{PREFIX}{own.name}" if own.source is None else str(own.source)
    return f"{PREFIX}{type(own).__name__}"
