"""The functions that each command calls, or that do the same in Python: an option of both has one default."""

WRITES = {"out", "pictures"}  # a command leaves files; a function of Python only where it is asked to
COMMANDS = {
    "evaluate": ("evaluation.judging.run:evaluate", "evaluation.judging.summary:evaluate_models"),
    "detect": (
        "evaluation.tasks.detection.protocols.detection:detection",
        "evaluation.tasks.detection.protocols.segmentation:segmentation",
    ),
    "action_eval": ("evaluation.tasks.action.protocols.action:action",),
    "rank": (
        "evaluation.ranking.rank:rank",
        "evaluation.ranking.summary:rank_tasks",
        "evaluation.ranking.published_ranking:rank_published",
    ),
    "choose": ("evaluation.ranking.choice.halving:successive_halving",),
    "solve": ("evaluation.solving.solve:solve",),
    "finetune": ("evaluation.finetuning.finetune:finetune",),
    "ground_truth": ("evaluation.ranking.truth.ground_truth:ground_truth",),
    "embed": ("evaluation.embedding.table:embed", "evaluation.embedding.run:run"),
    "predict": ("sslkit.models.predict:predict",),
    "export": ("sslkit.zoo.exporting:export",),
    "report": ("evaluation.report.write:write_report",),
    "reproduce": ("evaluation.studies.run:reproduce",),
    "look": ("sslkit.data.manifest.look:look",),
    "shards": ("sslkit.data.sources.shard_writer:write_shards",),
    "cut_films": ("sslkit.data.video.film_pieces:cut_films",),
}

PROTOCOLS = {  # the function of each protocol in Python, of features or a model
    "anomaly": "evaluation.protocols.anomaly:anomaly",
    "attentive": "evaluation.protocols.attentive:attentive",
    "clustering": "evaluation.protocols.clustering:clustering",
    "crowding": "evaluation.protocols.crowding:crowding",
    "few_shot": "evaluation.protocols.few_shot:few_shot",
    "fine_tune": "evaluation.protocols.fine_tune:fine_tune",
    "knn": "evaluation.protocols.knn:knn",
    "knn_seg": "evaluation.tasks.segmentation.protocols.knn_seg:knn_seg",
    "lidar": "evaluation.protocols.lidar:lidar",
    "patch_quality": "evaluation.protocols.patch_quality:patch_quality",
    "view_retrieval": "evaluation.protocols.view_retrieval:view_retrieval",
    "retrieval": "evaluation.protocols.retrieval:retrieval",
    "robustness": "evaluation.protocols.robustness:robustness",
    "linear": "evaluation.protocols.linear:linear_probe",
    "linear_grid": "evaluation.protocols.linear_grid:linear_grid",
    "linear_aug": "evaluation.protocols.linear_aug:linear_on_views",
    "linear_seg": "evaluation.tasks.segmentation.protocols.linear_seg:linear_seg",
    "semi_supervised": "evaluation.protocols.semi_supervised:semi_supervised",
}
