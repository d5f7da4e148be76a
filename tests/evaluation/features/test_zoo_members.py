"""Members of a zoo, used in turn: those that fail are left out, but not where several ranks work together."""

import pytest

from evaluation.features import zoo_members
from evaluation.features.zoo_members import Members
from sslkit.errors import UserError


def length(name: str, model: str) -> int:
    if not model:
        raise UserError(f"{name} is empty")
    return len(model)


def test_a_listed_member_that_fails_is_left_out_and_a_given_one_is_not() -> None:
    found = Members({"a": "one", "b": ""}, listed=["a", "b"]).of_each(length)
    assert found == {"a": 3} and found.left_out == {"b": "b is empty"}
    with pytest.raises(UserError, match="b is empty"):
        Members({"a": "one", "b": ""}, listed=["a"]).of_each(length)
    assert Members({"a": "one", "b": ""}).of_each(length, spare_all=True).left_out == {"b": "b is empty"}


def test_ranks_stop_at_the_first_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that went on alone would meet the others in the wrong call."""
    monkeypatch.setattr(zoo_members, "world_size", lambda: 2)
    with pytest.raises(UserError, match="b is empty"):
        Members({"a": "one", "b": "", "c": "two"}, listed=["a", "b", "c"]).of_each(length)
