"""Settings that a run may leave open, to be chosen for it: whether they are given, and how to fill them in."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from sslkit.training.config import Config

OPTIONS = (("objective", "momentum"), ("views", "scale"))  # of a method; optimizer.lr is left open too


def given(config: Config, path: tuple[str, str]) -> Any:
    """The value of a method's option; None where it is not given."""
    part, name = path
    return (config.method_options().get(part) or {}).get(name)


def filled(config: Config, values: Mapping[tuple[str, str], Any]) -> Config:
    """The settings with these options of the method where they are not given; None leaves them open."""
    values = {path: value for path, value in values.items() if value is not None and given(config, path) is None}
    if not values:
        return config
    method = {"name": config.method_name, **config.method_options()}
    for (part, name), value in values.items():
        method[part] = {**(method.get(part) or {}), name: value}
    return replace(config, method=method)


def as_in(config: Config, run: Config) -> Config:
    """The settings with those that are not given taken from a run, which may be older than the choices above."""
    config = filled(config, {path: given(run, path) for path in OPTIONS})
    if config.optimizer.lr is None:
        config = replace(config, optimizer=replace(config.optimizer, lr=run.optimizer.lr))
    return config
