"""The settings of a run: what the user asked for, and what was chosen, once, where nothing was said."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from functools import cached_property, reduce
from typing import Any

from sslkit.errors import UserError, first_line
from sslkit.training.config import Config

OPEN = (  # settings that are chosen where they are not given, beside options that an objective has to continue
    "backbone",
    "image_size",
    "range",
    "opacity",
    "fill",
    "optimizer.lr",
    "optimizer.head_lr",
    "tune",
    "unfreeze",
    "method.objective.momentum",
    "method.views.scale",
    "method.views.flip",
)
NOT_GIVEN = (None, "auto")


@dataclass(frozen=True)
class Choice:
    """The value of a setting. reason: it, and why, in the words of the first lines of a run; "": not worth a word."""

    value: Any
    reason: str = ""


@dataclass(frozen=True)
class Settled:
    """What a run has in its config.yaml. asked: the settings as given. chosen: by their paths, as `OPEN`."""

    asked: Config
    chosen: Mapping[str, Choice]

    @cached_property
    def config(self) -> Config:
        """The settings to train with."""
        return with_values(self.asked, {path: choice.value for path, choice in self.chosen.items()})

    def to_dict(self) -> dict[str, Any]:
        """Values that YAML can hold."""
        chosen = {path: asdict(choice) for path, choice in self.chosen.items()}
        return {"asked": self.asked.to_dict(), "chosen": chosen}

    @classmethod
    def from_dict(cls, content: Mapping[str, Any]) -> "Settled":
        """Read `to_dict`. Raises UserError for anything else."""
        try:
            chosen = {path: Choice(**choice) for path, choice in content["chosen"].items()}
            settled = cls(Config.from_mapping(content["asked"]), chosen)
            Config.from_mapping(settled.config.to_dict())  # checks the values that were chosen
        except (LookupError, TypeError, AttributeError) as error:
            raise UserError(f"it does not hold what was asked and chosen for a run ({first_line(error)})") from error
        return settled

    def of(self, asked: Config) -> "Settled":
        """The settings of this run with those that are given now: what is not given is as the run has it."""
        paths = dict.fromkeys((*OPEN, *self.chosen))
        values = {path: value_at(self.config, path) for path in paths if value_at(asked, path) in NOT_GIVEN}
        known = {path: value for path, value in values.items() if value not in NOT_GIVEN}
        return Settled(asked, {path: self.chosen.get(path, Choice(value)) for path, value in known.items()})


def value_at(config: Config, path: str) -> Any:
    """The value of a setting; of an option of the method None where it is not given."""
    group, _, name = path.partition(".")
    if group != "method":
        return reduce(getattr, path.split("."), config)
    part, name = name.split(".")
    return (config.method_options().get(part) or {}).get(name)


def with_values(config: Config, values: Mapping[str, Any]) -> Config:
    """The settings with these values at their paths."""
    for path, value in values.items():
        group, *names = path.split(".")
        if group == "method":
            method = {"name": config.method_name, **config.method_options()}
            method[names[0]] = {**(method.get(names[0]) or {}), names[1]: value}
            value = method
        elif names:
            value = replace(getattr(config, group), **{names[0]: value})
        config = replace(config, **{group: value})
    return config
