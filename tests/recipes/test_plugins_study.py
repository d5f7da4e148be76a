"""recipes/benchmarks/plugins: the study's plan, its rules on made-up runs, and its page of tables."""

import re
import sys
from pathlib import Path

import pytest
from scipy.stats import ttest_1samp

sys.path.insert(0, str(Path(__file__).parents[2] / "recipes" / "benchmarks"))

from keys import key_now
from plugins import answers
from plugins.plan import FORMS, OBJECTIVES, PARTS, SEEDS, parts_of
from results import load, path_of

from sslkit import regularizers
from sslkit.options.members import check_options

README = Path(__file__).parents[2] / "README.md"
PAGE = path_of("plugins/study").parents[1] / "README.md"
INTERVAL = re.compile(r"([+-]?\d+\.\d)(?: [\w-]+){0,6}(?:, | \()([+-]?\d+\.\d) to ([+-]?\d+\.\d)")
FASHION = ("fashion", "6")
BASE = {"knn": 0.7, "few_shot": 0.6, "transfer": 0.5, "inter": 0.3, "intra": 0.1}


def made_up(**forms: list[float]) -> dict:
    """Runs of today's code, of seed 200 on fashion: the probe of each form by objective."""
    runs = {
        f"fashion | {name} | {form.replace('_', ', ', 1).replace('_', ' ')} | 6 | 200": {"probe": value, **BASE}
        for form, values in forms.items()
        for name, value in zip(OBJECTIVES, values, strict=True)
    }
    return {run: row | {"key": key_now(parts_of(run))} for run, row in runs.items()}


PLAIN = [0.70, 0.72, 0.74, 0.76, 0.78]


def raised(*points: float) -> list[float]:
    return [value + point / 100 for value, point in zip(PLAIN, points, strict=True)]


def test_no_run_is_planned_twice_and_no_seed_was_used_to_choose() -> None:
    runs = [run for part in PARTS.values() for run in part.runs()]
    assert len(runs) == len(set(runs)) == 502
    assert not set(map(str, SEEDS)) & {key.rpartition(" | ")[2] for key in load("plugins/default")["runs"]}


def test_priors_are_compared_at_the_seed_and_objectives_that_all_have() -> None:
    priors = {"guide_random_network": PLAIN, "guide_hog": raised(5, 5, 5, 5, 9), "guide_alone": raised(1, 2, 2, 1, 9)}
    runs = made_up(plain=PLAIN, guide=raised(2, 3, 2, 3, 9), **priors)
    runs |= {key.replace("200", "201"): row for key, row in made_up(plain=PLAIN, guide=raised(9, 9, 9, 9, 9)).items()}
    table = answers.priors(runs)
    assert "| pca |  |  |  |  | +2.5 (+1.6 to +3.4) * | +2.5 (+1.6 to +3.4) |" in table
    assert "| hog |  |  |  |  | +5.0 (+5.0 to +5.0) * | +5.0 (+5.0 to +5.0) |" in table
    assert "hog" not in answers.answer(runs) + answers.other_measures(runs, FASHION)


def test_a_plug_in_differs_from_its_prior_alone_only_by_an_interval_without_0() -> None:
    alone = {"adc_alone": raised(4, 6, 4, 6, 4), "guide_alone": raised(1, 2, 2, 1, 9)}
    runs = made_up(plain=PLAIN, adc=raised(2, 3, 2, 3, 2), guide=raised(2, 3, 2, 3, 9), **alone)
    same = " | ".join(["+0.0 (+0.0 to +0.0)"] * 3)
    adc = f"| adc - alone, fashion, 6 epochs | -2.5 (-3.4 to -1.6) * | {same} |"
    guide = f"| guide - alone, fashion, 6 epochs | +1.0 (-0.3 to +2.3) | {same} |"
    assert answers.minus(runs, answers.FROM_ALONE).splitlines()[2:] == [
        adc,
        guide,
        "",
        "Of 8 intervals 1 leave 0 out; without any effect about 0 would.",
    ]


def test_objectives_that_compare_views_are_also_judged_by_themselves() -> None:
    runs = made_up(plain=PLAIN, koleo=raised(3, 3, 5, 3, -9))
    assert "*" not in answers.answer(runs)
    assert "| koleo | +3.5 (+1.9 to +5.1) * |" in answers.answer(runs, answers.VIEWS)


@pytest.mark.parametrize("form", FORMS)
def test_a_form_has_options_of_its_plug_in(form: str) -> None:
    plugin, options = FORMS[form]
    if plugin:
        assert check_options(regularizers.find(plugin), options, plugin) == options


def test_the_interval_of_the_gain_is_that_of_a_t_test() -> None:
    gained = (1.0, 3.0, 2.0, 4.0, 2.5)
    runs = made_up(plain=PLAIN, koleo=raised(*gained))
    ends = ttest_1samp(gained, 0).confidence_interval(0.95)
    assert f"+2.5 ({ends.low:+.1f} to {ends.high:+.1f}) *" in answers.answer(runs)


def test_a_plug_in_that_not_all_objectives_have_run_with_is_not_judged_yet() -> None:
    runs = made_up(plain=PLAIN, koleo=raised(3, 3, 4, 3, 3))
    assert " * |" in answers.answer(runs)
    runs.pop("fashion | mae | koleo | 6 | 200")
    assert " * |" not in answers.answer(runs)


@pytest.mark.parametrize(
    ("own", "control", "helps"),
    [
        ((3, 3, 4, 3, 3), (0, 1, 0, 1, 0), True),
        ((3, 3, 4, 3, 3), (3, 4, 3, 3, 4), False),  # anything else in the prior's place does as much
        ((3, -3, 4, -3, 1), (-9, -9, -9, -9, -9), False),  # by one objective more than by another
    ],
)
def test_a_plug_in_with_a_prior_helps_if_it_is_above_plain_and_its_control(own, control, helps: bool) -> None:
    runs = made_up(plain=PLAIN, dsa=raised(*own), dsa_random_network=raised(*control))
    row = next(line for line in answers.answer(runs).splitlines() if line.startswith("| dsa |"))
    assert ("*" in row) == helps


def test_an_objective_is_helped_only_where_there_are_seeds_to_say_so() -> None:
    runs = made_up(plain=PLAIN, koleo=raised(5, 5, 5, 5, 5))
    assert "*" not in answers.by_objective(runs, FASHION)
    for seed, more in ((201, 0.0), (202, 0.01)):
        runs |= {
            key.replace("200", str(seed)): {**row, "probe": row["probe"] + more * ("koleo" in key)}
            for key, row in runs.items()
            if key.endswith("200")
        }
    assert answers.by_objective(runs, FASHION).count("+5.3 (+3.9 to +6.8) *") == len(OBJECTIVES)


@pytest.mark.parametrize(
    ("by", "verdict"),
    [((0.2, -0.2, 0, 0.2, -0.2), "agrees"), ((3, -3, 0, 3, -3), "open"), ((-3, -3, -3, -3, -4), "disagrees")],
)
def test_priors_are_alike_if_the_interval_is_within_two_points(by: tuple[float, ...], verdict: str) -> None:
    said = answers.claims(made_up(plain=PLAIN, adc=raised(2, 2, 2, 2, 2), adc_hog=raised(*(2 + one for one in by))))
    assert f"ADC with hog is as with pca: {verdict}, " in said
    assert "ADC does (+1.5 to 2): agrees, +2.0 (+2.0 to +2.0) over 4 objectives." in said
    assert "DSA raises the probe (+2.04): not measured." in said


def test_the_committed_tables_are_those_of_the_committed_runs() -> None:
    page = path_of("plugins/study").with_suffix(".md")
    assert page.read_text() == answers.tables(load("plugins/study")["runs"])


def test_the_page_has_the_committed_answer() -> None:
    runs = load("plugins/study")["runs"]
    parts = [*answers.of_page(runs), answers.claims(runs), answers.of_older_code(runs)]
    parts += [answers.minus(runs, answers.FROM_ALONE)]
    assert all(part in PAGE.read_text() for part in parts)


def intervals(text: str) -> dict[str, tuple[float, ...]]:
    """Mean and ends of each interval, by its words."""
    return {match[0]: tuple(map(float, match.groups())) for match in INTERVAL.finditer(" ".join(text.split()))}


@pytest.mark.parametrize(
    ("page", "start", "end", "least"),
    [(PAGE, "* **In short runs", "![Gains", 23), (README, "* **Which regulariser?**", "* **Which metric", 11)],
)
def test_the_intervals_in_the_words_are_those_of_the_tables(page: Path, start: str, end: str, least: int) -> None:
    told = intervals(page.read_text().partition(start)[2].partition(end)[0])
    in_tables = set(intervals(path_of("plugins/study").with_suffix(".md").read_text()).values())
    losses = {(-mean, -high, -low) for mean, low, high in in_tables if high < 0}  # "loses 1.0 (0.1 to 2.0)"
    assert len(told) >= least
    assert [words for words, one in told.items() if one not in in_tables and one not in losses] == []
