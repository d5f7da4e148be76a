"""Controls of a ranking: the largest class and raw pixels, by leave-one-out kNN on the ranked images."""

from collections.abc import Mapping, Sequence

import numpy as np

from evaluation.ranking.consensus import Null
from evaluation.ranking.inputs.candidates import Candidate as Ranked
from evaluation.ranking.scoring import MetricResult
from evaluation.results.comparison import adjust, compare
from evaluation.results.decisions import candidate_of, difference_of, largest_class
from evaluation.results.measures import right_by_largest
from evaluation.results.result import Result, rows_digest
from sslkit.backbones.words import is_null


def compare_nulls(
    by_knn: Mapping[int, MetricResult], ranked: Sequence[Ranked], nulls: Mapping[str, MetricResult]
) -> tuple[Null, ...]:
    """Return the nulls with the difference of each of M models to each, p after Holm over all; () without classes.

    Models with random weights that are ranked are nulls, too.

    by_knn: index of a model -> its leave-one-out kNN. nulls: name -> that of a control which is not ranked.
    """
    sample = ranked[0].sample
    if sample.y is None or len(by_knn) < len(ranked) or len(sample) < 2:
        return ()
    y = sample.y.cpu().numpy()
    groups = None if sample.groups is None else sample.groups.cpu().numpy()
    rows = rows_digest(np.arange(len(y)), y)

    def result(name: str, measured: MetricResult) -> Result:
        right = measured.details.terms.cpu().numpy() > 0
        about = {"model": name, "outcomes": right, "groups": groups, "paired_on": rows, "n": len(right)}
        return Result("knn", "leave one out", "top1", float(right.mean()), largest=right_by_largest(y), **about)

    models = [result(candidate.name, by_knn[k]) for k, candidate in enumerate(ranked)]
    controls = [result(name, measured) for name, measured in nulls.items()]
    controls += [*(model for model in models if is_null(model.model)), *largest_class(models[0])]
    tests = adjust([compare(model, control) for control in controls for model in models])
    each = np.array(tests, object).reshape(len(controls), len(models))
    return tuple(
        Null(candidate_of(control), [difference_of(model, test) for model, test in zip(models, row, strict=True)])
        for control, row in zip(controls, each, strict=True)
    )
