"""Every statistic that is given an interval holds the value that it is about: its coverage is simulated.

The code is searched for the places that make an interval; one that is not in PLACES fails the test, so a new statistic
brings its simulation. The slow run draws more data sets.
"""

import ast
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import simulations
import simulations_of_features as of_features

from evaluation.learners.partitions import MEASURES
from evaluation.ranking.truth.agreement import FEWEST
from evaluation.results import class_means, measures, statistics
from evaluation.results.numbers import MAE, R2, RMSE

ROOT = Path(__file__).parents[3]
COVERS = 0.92
QUICK: dict[str, Callable] = {
    "share": simulations.shares,
    "class means": simulations.class_means,
    "share of groups": simulations.shares_of_groups,
    "class means of groups": simulations.class_means_of_groups,
    "difference of groups": simulations.group_differences,
    "mean": simulations.means,
    "seeds": simulations.seeds,
    "episodes": simulations.episodes,
    "difference of images": simulations.image_differences,
    "difference of paired images": simulations.paired_images,
    "difference of classes": simulations.class_differences,
    "difference of episodes": simulations.episode_differences,
    "correlation": simulations.correlations,
    **{name: partial(simulations.numbers, name) for name in (R2, MAE, RMSE)},
    "difference of numbers": simulations.number_differences,
    "auroc": simulations.defect_rankings,
    "auroc of groups": simulations.defect_rankings_of_groups,
    "aupro": simulations.defect_regions,
    "difference of shares": simulations.share_differences,
    **{name: partial(simulations.probabilities, name) for name in ("nll", "brier", "ece")},
    "miou": partial(simulations.label_maps, "miou"),
    "pixel_accuracy": partial(simulations.label_maps, "pixel_accuracy"),
    "class_accuracy": partial(simulations.label_maps, "class_accuracy"),
}
OVER_CLASSES = ("inter/mean", "intra/mean", "fisher/mean", "inter/unit", "intra/unit", "fisher/unit", "silhouette")
OVER_ROWS = ("rankme", "alpha_req", "uniformity")
SLOW: dict[str, Callable] = {
    **{name: partial(of_features.of_classes, name) for name in OVER_CLASSES},
    **{name: partial(of_features.of_rows, name) for name in OVER_ROWS},
    "lidar": of_features.lidar,
    "alignment": of_features.alignment,
    "view recall": of_features.view_recall,
    **{name: partial(of_features.clusters, name) for name in MEASURES},
    "retrieval": partial(of_features.retrievals, "map"),
    "retrieval at R": partial(of_features.retrievals, "map_at_r"),
    "recall": partial(of_features.retrievals, "recall_at_1"),
    **{name: partial(of_features.agreements, name) for name in FEWEST},
    "scores": partial(of_features.scores, False),
    "ranks": partial(of_features.scores, True),
    "tau over tasks": partial(of_features.over_several_tasks, False),
    "difference over tasks": partial(of_features.over_several_tasks, True),
}
NIGHTLY: dict[str, Callable] = {  # a second a data set
    "map11": partial(simulations.precisions, measures.ap11),
    "map": partial(simulations.precisions, measures.average_precision),
}
SIMULATED = {**QUICK, **SLOW, **NIGHTLY}

# Calls of which an interval is made, beside the functions of `statistics` and `class_means` that return one.
PARTS = {"percentile", "quantile", "nanpercentile", "nanquantile", "confidence_interval", "ppf", "stdtrit"}
PARTS |= {"betaincinv", "ndtri", "t_quantile", "wilson_ends", "Z95"}
NO_INTERVAL = "no interval"
PLACES: dict[str, tuple[str, ...]] = {  # file and function: its simulations
    "evaluation/studies/claims.py:_mean_difference": ("seeds",),
    "evaluation/studies/maps.py:_cells": ("seeds",),
    "evaluation/studies/moments.py:moments": ("mean",),
    "evaluation/studies/pictured.py:Bounds.summarize": ("correlation",),
    "evaluation/studies/rankings.py:Accuracies.summarize": ("seeds",),
    "evaluation/studies/rankings.py:Ranked.cells": ("seeds",),
    "evaluation/studies/rankings.py:Shifts.cells": ("seeds",),
    "evaluation/studies/sources.py:_correlation": ("correlation",),
    "evaluation/studies/stages.py:Curves._cells": ("seeds",),
    "evaluation/studies/subsets.py:Convergence.summarize": ("seeds",),
    "evaluation/studies/subsets.py:Subsets.summarize": ("seeds",),
    "evaluation/studies/subsets.py:format_correlation": ("correlation",),
    "evaluation/studies/training.py:Training._cells": ("seeds",),
    "evaluation/tasks/segmentation/miou.py:estimates": ("miou", "pixel_accuracy", "class_accuracy"),
    "evaluation/tasks/action/results.py:_several": ("seeds",),
    "evaluation/protocols/crowding.py:_over_classes": OVER_CLASSES,
    "evaluation/protocols/crowding.py:_spectrum.estimate": ("rankme", "alpha_req"),
    "evaluation/protocols/crowding.py:estimate_uniformity": ("uniformity",),
    "evaluation/tasks/detection/results.py:_result": ("seeds",),
    "evaluation/protocols/few_shot.py:solve": ("episodes",),
    "evaluation/protocols/knn.py:_judge": ("share", "class means", "share of groups"),
    "evaluation/results/over_groups.py:difference_over_groups": ("difference of groups",),
    "sslkit/data/likeness.py:_gray": (NO_INTERVAL,),  # the spread of an image's values
    "sslkit/models/patches.py:components": (NO_INTERVAL,),  # the span of a picture's colours
    "sslkit/numerics/near_copies.py:chance_levels": (NO_INTERVAL,),  # a threshold
    "sslkit/numerics/wilson.py:effective_rows": ("share of groups", "class means of groups"),
    "evaluation/protocols/lidar.py:estimate_lidar": ("lidar",),
    "evaluation/protocols/lidar.py:measure": ("alignment",),
    "evaluation/protocols/view_retrieval.py:measure": ("view recall", "alignment"),
    "evaluation/learners/defect_scores.py:auroc": ("auroc", "auroc of groups"),
    "evaluation/learners/defect_scores.py:Regions.estimate": ("aupro",),
    "evaluation/protocols/anomaly.py:_few_shot": ("seeds",),
    "evaluation/protocols/anomaly.py:_mean": ("seeds",),
    "evaluation/learners/calibration.py:measure_probabilities": ("nll", "brier", "ece"),
    "evaluation/protocols/_by_class.py:_lines": ("share", "share of groups"),
    "evaluation/protocols/robustness.py:Answers.accuracy": ("share", "share of groups"),
    "evaluation/protocols/robustness.py:Answers.estimates": ("class means", "share"),
    "evaluation/protocols/robustness.py:run": ("difference of shares",),
    "evaluation/protocols/clustering.py:measure": ("nmi", "ari", "cluster_accuracy", "seeds"),
    "evaluation/protocols/retrieval.py:_find_each_other": ("retrieval", "retrieval at R", "recall"),
    "evaluation/protocols/retrieval.py:_find_published": ("mean",),
    "evaluation/protocols/patch_quality.py:over_sets": ("seeds",),
    "evaluation/protocols/_scored.py:result_of_scores": ("class means",),
    "evaluation/protocols/linear_aug.py:_result": ("class means",),
    "evaluation/ranking/truth/agreement.py:with_interval": (*FEWEST, "tau over tasks", "difference over tasks"),
    "evaluation/ranking/consensus.py:normal_scores": (NO_INTERVAL,),
    "evaluation/ranking/ranking.py:intervals": ("scores", "ranks"),
    "evaluation/report/cells.py:of_share": ("share",),
    "evaluation/results/comparison.py:_classes": ("difference of classes",),
    "evaluation/results/comparison.py:_episodes": ("difference of episodes", "difference of numbers"),
    "evaluation/results/comparison.py:_images": ("difference of images",),
    "evaluation/results/measures.py:_precision": ("map11", "map"),
    "evaluation/results/measures.py:measure": ("share", "class means"),
    "evaluation/results/numbers.py:measure_numbers.estimate": (R2, MAE, RMSE),
    "evaluation/results/power.py:detectable_classes": (NO_INTERVAL,),
    "evaluation/results/power.py:detectable_mean": (NO_INTERVAL,),
    "evaluation/results/power.py:detectable_share.excess": (NO_INTERVAL,),
    "evaluation/tuning/outcomes.py:_mean": ("seeds",),
    "recipes/benchmarks/plugins/answers.py:_claim": ("seeds",),
    "recipes/benchmarks/seeds.py:half_width": ("seeds",),
    "sslkit/numerics/paired.py:pair": ("difference of paired images", "difference of groups"),
    "sslkit/numerics/paired.py:t_quantile": (NO_INTERVAL,),
    "sslkit/numerics/wilson.py:wilson": ("share",),
    "sslkit/numerics/wilson.py:wilson_ends": ("share",),
    "sslkit/numerics/wilson.py:with_interval": ("share",),
    "sslkit/layers/visreg.py:normal_quantiles": (NO_INTERVAL,),
    "sslkit/numerics/curves.py:_limits": (NO_INTERVAL,),
}


def makers() -> dict[str, set[str]]:
    """The functions that return an estimate or the ends of an interval, by their module."""
    return {
        module.__name__: {
            name
            for name, one in vars(module).items()
            if inspect.isfunction(one)
            and any(word in str(one.__annotations__.get("return")) for word in ("Estimate", "tuple[float, "))
        }
        for module in (statistics, class_means)
    }


def places(path: Path) -> Iterator[str]:
    """The functions of a file that make an interval, as FILE:NAME."""
    tree, name = ast.parse(path.read_text()), path.relative_to(ROOT).as_posix()
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in makers()
        for alias in node.names
        if alias.name in makers()[node.module]
    }
    own = ("wilson",)

    def inside(node: ast.AST, around: tuple[str, ...]) -> Iterator[str]:
        for child in ast.iter_child_nodes(node):
            at = (*around, child.name) if isinstance(child, (ast.FunctionDef, ast.ClassDef)) else around
            called = getattr(child, "func", None) if isinstance(child, ast.Call) else child
            word = getattr(called, "attr", None) or getattr(called, "id", None)
            local = word in own and name == "sslkit/numerics/wilson.py"
            if isinstance(child, (ast.Call, ast.Name)) and (word in imported | PARTS or local):
                yield f"{name}:{'.'.join(around)}"
            yield from inside(child, at)

    yield from (one for one in inside(tree, ()) if not one.endswith(":"))


def test_every_place_that_makes_an_interval_has_its_simulation() -> None:
    files = [path for part in ("evaluation", "sslkit", "recipes") for path in (ROOT / part).rglob("*.py")]
    homes = ("evaluation/results/statistics.py", "evaluation/results/class_means.py")
    found = {one for path in files for one in places(path) if not one.startswith(homes)}
    assert found - set(PLACES) == set(), "a new interval: add a simulation of its coverage, and its place"
    assert set(PLACES) - found == set(), "places that make no interval any more"
    named = {name for names in PLACES.values() for name in names} - {NO_INTERVAL}
    assert named == set(SIMULATED)


def test_a_new_interval_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "new.py").write_text(
        "import numpy as np\nfrom evaluation.results.statistics import share as of\n\n\n"
        "def a(x):\n    return np.quantile(x, [0.025, 0.975])\n\n\ndef b(x):\n    return of(x).interval\n\n\n"
        "def c(x):\n    return x.mean()\n"
    )
    assert set(places(tmp_path / "new.py")) == {"new.py:a", "new.py:b"}


def covered(simulation: Callable, count: int) -> float:
    drawn = [one for one in simulation(np.random.default_rng(0), count) if one[0] is not None]
    assert len(drawn) > count / 4, "too few data sets had an interval"
    return float(np.mean([low - 1e-12 <= value <= high + 1e-12 for (low, high), value in drawn]))


@pytest.mark.parametrize("name", QUICK)
def test_intervals_cover(name: str) -> None:
    """60 data sets: three standard errors below 92 %; a percentile bootstrap of mIoU reaches 0.7."""
    assert covered(QUICK[name], 60) > COVERS - 3 * (COVERS * (1 - COVERS) / 60) ** 0.5


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, *SLOW, *(pytest.param(name, marks=pytest.mark.nightly) for name in NIGHTLY)])
def test_intervals_cover_many_data_sets(name: str) -> None:
    """Two standard errors of 300 data sets below 92 %."""
    assert covered(SIMULATED[name], 300) > COVERS - 2 * (COVERS * (1 - COVERS) / 300) ** 0.5
