"""Features: outputs of a frozen backbone on one split of a data set, extracted once and used by every protocol."""

from sslkit import lazy

__getattr__, __dir__, __all__ = lazy.attributes(
    __name__,
    {
        "Features": "evaluation.features.table:Features",
        "as_features": "evaluation.features.table:as_features",
        "join_splits": "evaluation.features.table:join_splits",
        "match_labels": "evaluation.features.table:match_labels",
        "renumber": "sslkit.data.sources.class_names:renumber",
        "row_ids": "evaluation.datasets.base:row_ids",
    },
)
