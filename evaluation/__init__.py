"""Protocols and transferability metrics for sslkit's backbones. It imports sslkit; sslkit never imports it.

    train, test = (evaluation.extract("runs/zoo/NAME", "fashion_mnist", split) for split in ("train", "test"))
    evaluation.linear_probe(train, test).value

Everything is imported when it is first used.
"""

from sslkit import lazy

__getattr__, __dir__, __all__ = lazy.attributes(
    __name__,
    {
        "Comparison": "evaluation.results.comparison:Comparison",
        "EpisodeTable": "evaluation.learners.episodes:EpisodeTable",
        "Estimate": "evaluation.results.statistics:Estimate",
        "Embedding": "evaluation.embedding.table:Embedding",
        "Features": "evaluation.features.table:Features",
        "Result": "evaluation.results.result:Result",
        "action_recognition": "evaluation.tasks.action.protocols.action:action",
        "compare": "evaluation.results.comparison:compare",
        "compare_all": "evaluation.results.comparison:compare_all",
        "decide": "evaluation.results.decisions:decide",
        "crowding": "evaluation.protocols.crowding:crowding",
        "draw_episodes": "evaluation.learners.episodes:draw_episodes",
        "embed": "evaluation.embedding.table:embed",
        "evaluate": "evaluation.judging.run:evaluate",
        "extract": "evaluation.features.extraction:extract",
        "few_shot": "evaluation.protocols.few_shot:few_shot",
        "fine_tune": "evaluation.protocols.fine_tune:fine_tune",
        "fit_logistic": "sslkit.numerics.logistic:fit_logistic",
        "instance_segmentation": "evaluation.tasks.detection.protocols.segmentation:segmentation",
        "knn": "evaluation.protocols.knn:knn",
        "lidar": "evaluation.protocols.lidar:lidar",
        "view_retrieval": "evaluation.protocols.view_retrieval:view_retrieval",
        "linear_on_views": "evaluation.protocols.linear_aug:linear_on_views",
        "linear_probe": "evaluation.protocols.linear:linear_probe",
        "object_detection": "evaluation.tasks.detection.protocols.detection:detection",
        "open_split": "evaluation.datasets:open_split",
        "semi_supervised": "evaluation.protocols.semi_supervised:semi_supervised",
        "MetricResult": "evaluation.ranking.scoring:MetricResult",
        "Ranking": "evaluation.ranking.ranking:Ranking",
        "evaluate_metric": "evaluation.ranking.scoring:evaluate_metric",
        "metrics": "evaluation.ranking.scoring:metrics",
        "rank": "evaluation.ranking.rank:rank",
        "score": "evaluation.ranking.scoring:score",
        "weighted_tau": "evaluation.ranking.truth.agreement:weighted_tau",
        "table": "evaluation.results.tables:table",
        "agreement": "evaluation.ranking.truth.agreement",
        "comparison": "evaluation.results.comparison",
        "datasets": "evaluation.datasets",
        "detection": "evaluation.tasks.detection.names",
        "embedding": "evaluation.embedding",
        "episodes": "evaluation.learners.episodes",
        "extraction": "evaluation.features.extraction",
        "features": "evaluation.features",
        "plots": "evaluation.features.plots",
        "protocols": "evaluation.protocols",
        "published": "evaluation.ranking.truth.published",
        "report": "evaluation.report",
        "result": "evaluation.results.result",
        "statistics": "evaluation.results.statistics",
        "store": "evaluation.results.store",
        "subsets": "sslkit.data.subsets",
        "tables": "evaluation.results.tables",
        "transferability": "evaluation.transferability",
    },
    {"load_model": "sslkit.load"},
)
