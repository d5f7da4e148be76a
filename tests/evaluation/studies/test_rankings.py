from pathlib import Path

from evaluation.studies.claims import AGREES, Claim
from evaluation.studies.rankings import MEAN, Accuracies, Shifts, rank_shifts

GOOD = {
    f"{name} | {model}": value
    for name in ("fine-tuning", "after")
    for model, value in zip("abc", (3, 2, 1), strict=True)
}
ONE = GOOD | {"before | a": 1, "before | b": 2, "before | c": 3}  # the last is first
SHIFTS = Shifts(
    caption="Figure.",
    metrics={"before": "logme", "after": "ped+logme"},
    benchmark="ped",
    claims=(Claim("nearer", MEAN, (("after", "before"),), -1),),
)


def test_a_shift_is_above_0_where_a_metric_ranks_a_model_too_high() -> None:
    assert rank_shifts("before", ONE) == {"a": -2, "b": 0, "c": 2}


def test_distances_of_ranks_over_data_sets(tmp_path: Path) -> None:
    found = {"one": ONE, "two": ONE}
    summary = SHIFTS.summarize(found)
    assert abs(summary.rows["before"]["one"].measured.value - 4 / 3) < 1e-9
    assert summary.rows["after"][MEAN].measured.value == 0 and summary.outcome == AGREES
    SHIFTS.draw(found, tmp_path / "ranks.png", "Ranks")
    assert (tmp_path / "ranks.png").read_bytes().startswith(b"\x89PNG")


def test_groups_have_the_sign_of_their_shift() -> None:
    summary = Shifts(**{**vars(SHIFTS), "groups": {"last": ("c",), "none": ("z",)}}).summarize({"one": ONE, "two": ONE})
    assert summary.rows["before"]["last"].measured.value == 2 and "none" not in summary.rows["before"]


def test_accuracies_are_shown_over_the_seeds() -> None:
    found = {"pets": {"BYOL | 0": 0.9, "BYOL | 1": 0.8}, "digits": {"BYOL | 0": 0.5, "BYOL | 1": 0.5}}
    cells = Accuracies(caption="Table.", benchmark="ped").summarize(found).rows["BYOL"]
    assert abs(cells["pets"].measured.value - 0.85) < 1e-9 and cells["pets"].published == 91.48
    assert cells["digits"].published is None
