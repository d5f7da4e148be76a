"""Forms of `guide` that recipes/benchmarks/guide_study.py compares, besides the one in the library."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from math import cos, pi
from unittest import mock

from torch import Tensor

from sslkit import balance


class Falling(balance.Shares):
    """The balance falls to 0 along half a cosine."""

    def factor(self, name: str) -> Tensor | float:
        return super().factor(name) * (1 + cos(pi * self.progress)) / 2


class Settled(balance.Shares):
    """The factor is found in the first tenth of the run and kept: the share falls as the prior is learned."""

    def _note(self, name: str, objective: Mapping[str, Tensor], plugin: Mapping[str, Tensor]) -> None:
        found = self.logs[name]
        super()._note(name, objective, plugin)
        if self.progress > 0.1 and not found.isinf():
            self.logs[name] = found


@contextmanager
def shares(rule: str | None) -> Iterator[None]:
    """The rule of the shares while a run lasts; None is the library's."""
    rules = {"falling": Falling, "settled": Settled}
    with mock.patch.object(balance, "Shares", rules[rule] if rule else balance.Shares):
        yield
