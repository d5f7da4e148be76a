"""Names in pictures: of models, wrapped where they have punctuation, and of protocols and metrics, in words."""

import re

LETTERS, LINES = 30, 2  # of a line, and lines of a name
PROTOCOLS = {
    "knn": "nearest neighbours",
    "linear": "linear probe",
    "linear_aug": "linear probe on views",
    "linear_grid": "linear probes of layers",
    "attentive": "attentive probe",
    "few_shot": "few-shot",
    "fine_tune": "fine-tuning",
    "semi_supervised": "few labels",
    "linear_seg": "linear segmentation",
    "knn_seg": "nearest-neighbour segmentation",
    "crowding": "class geometry",
    "anomaly": "defects by nearest patches",
    "patch_quality": "quality of patches",
    "view_retrieval": "finding the other view",
}
METRICS = {
    "top1": "top-1 accuracy",
    "mean_per_class": "mean accuracy per class",
    "map11": "11-point mean average precision",
    "map": "mean average precision",
    "episode_accuracy": "accuracy of episodes",
    "map_at_r": "mean average precision at R",
    "auroc": "area under the ROC curve",
    "aupro": "area under the overlap of regions",
    "nmi": "normalised mutual information",
    "ari": "adjusted Rand index",
    "cluster_accuracy": "accuracy of matched clusters",
    "miou": "mean IoU",
    "inter_class_distance": "distance between class means",
    "dse": "dense structure (DSE)",
    "lidar": "LiDAR, effective rank",
    "recall_at_1": "recall at 1",
}


def in_words(protocol: str, metric: str) -> str:
    """Return "linear probe, top-1 accuracy"; a name without words of its own stays, with spaces for underscores."""
    names = PROTOCOLS.get(protocol, protocol.replace("_", " ")), METRICS.get(metric, metric.replace("_", " "))
    return ", ".join(filter(None, names))


def wrap(name: str, letters: int = LETTERS, lines: int = LINES) -> str:
    """Return a name in at most two lines of about 30 letters, broken after its punctuation."""
    parts = re.split(r"(?<=[-_+/.: ])", short(name, letters * lines - lines))
    broken = [""]
    for chunk in (piece for long in parts for piece in re.findall(f".{{1,{letters}}}", long)):
        if len(broken[-1]) + len(chunk) <= letters:
            broken[-1] += chunk
        else:
            broken.append(chunk)
    if len(broken) > lines:  # punctuation was too rare
        broken = re.findall(f".{{1,{letters}}}", "".join(broken))
    return "\n".join(broken)


def short(name: str, letters: int = LETTERS + LETTERS // 2) -> str:
    """Return a name of at most so many letters; beginning and end stay."""
    half = (letters - 1) // 2
    return name if len(name) <= letters else f"{name[: letters - 1 - half]}…{name[-half:]}"
