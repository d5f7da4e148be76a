"""A budget is read in the units that people write, and what was finished before counts."""

import pytest

from evaluation.solving.budget import Budget
from sslkit.errors import UserError


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("30min", 1800), ("2h", 7200), ("1.5d", 129_600), (20, 1200), (" 5 min ", 300)]
)
def test_units(text: str | float, seconds: float) -> None:
    assert Budget.parse(text).seconds == seconds


@pytest.mark.parametrize("text", ["", "soon", "0", "-3min", "3 weeks", "min", "1.2.3h", None])
def test_what_is_no_time_is_refused(text: str | None) -> None:
    with pytest.raises(UserError, match="give a time such as 90s, 30min or 2h"):
        Budget.parse(text)


def test_what_was_finished_before_is_spent() -> None:
    budget = Budget.parse("10min")
    budget.before += 540
    assert budget.spent >= 540 and budget.left <= 60 and str(budget) == "9 min of 10 min"
