"""Members of a zoo, used in turn: those that fail are left out, but not where several ranks work together."""

import pytest

from evaluation.features import zoo_members
from evaluation.features.zoo_members import Closed, Members, load_member, open_all
from sslkit.errors import UserError
from sslkit.models.loading import Loading
from sslkit.models.model import Model


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


def test_networks_beyond_the_limit_are_closed_and_opened_again_in_their_turn() -> None:
    names = [f"random:narrow_resnet:{seed}" for seed in range(3)]
    opened = []

    def load(one: object) -> Model:
        opened.append(one)
        return load_member(one, Loading(image_size=8, in_chans=1))

    size = sum(
        value.nbytes for value in load_member(names[0], Loading(image_size=8, in_chans=1)).net.state_dict().values()
    )
    found = open_all(names, load, most=size)
    assert isinstance(found[names[0]], Model) and isinstance(found[names[1]], Closed)
    again = load_member(found[names[1]])
    assert again.name == names[1] and again.image_size == 8 and opened == [*names, names[1]]
    with pytest.raises(UserError, match="no model 'nowhere'"):
        open_all([*names, "nowhere"], load, most=0)
