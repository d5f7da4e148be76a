"""What lies between two state dicts, and weights of two networks."""

import pytest
import torch

from sslkit.errors import UserError
from sslkit.numerics.state_dicts import interpolate


def test_both_ends_are_exact_and_the_rest_lies_between() -> None:
    start = {"w": torch.randn(5), "h": torch.randn(3).half(), "steps": torch.tensor(2)}
    end = {"w": torch.randn(5), "h": torch.randn(3).half(), "steps": torch.tensor(7)}
    for share, same in ((0, start), (1, end)):
        between = interpolate(start, end, share)
        assert all(torch.equal(between[name], same[name]) for name in ("w", "h")) and between["steps"] == 7
    quarter = interpolate(start, end, 0.25)
    assert torch.allclose(quarter["w"], 0.75 * start["w"] + 0.25 * end["w"]) and quarter["h"].dtype is torch.float16
    assert quarter["steps"].data_ptr() != end["steps"].data_ptr()


def test_the_first_tensor_that_differs_is_named() -> None:
    one = {"a": torch.ones(2), "b": torch.ones(3)}
    with pytest.raises(UserError, match="start and end are weights of two networks: b is in the end alone"):
        interpolate({"a": torch.ones(2)}, one, 0.5)
    with pytest.raises(UserError, match="c is in the start alone"):
        interpolate({**one, "c": torch.ones(1)}, one, 0.5)
    with pytest.raises(UserError, match=r"b has the shapes \(4,\) and \(3,\)"):
        interpolate({**one, "b": torch.ones(4)}, one, 0.5)
