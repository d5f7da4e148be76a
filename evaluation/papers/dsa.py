"""Song et al. 2024, arXiv 2407.13541 (DSA): its tables and figures as experiments.

In small the rows have the tuned settings of `recipes/conf/experiment` on the Fashion-MNIST in the package (8,000 images
of 28 pixels, 6 epochs, a network of 0.3 million parameters); at the paper's scale those of `experiment=paper/...`.
Rows and columns: `dsa_rows.py`, those of the transfer tables `dsa_transfer.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from evaluation.papers import dsa_transfer as transfer
from evaluation.papers.claims import Claim
from evaluation.papers.dsa_rows import (
    COSINE,
    CROWDED,
    CROWDING,
    DISTANCES,
    INTER,
    INTRA,
    ON,
    SUPERVISED,
    TABLE1,
    TABLE2,
    TABLE2_DSA,
    TABLE8_DSA,
    beside_clip,
    both,
    components,
    only,
    pairs,
    selected,
    swept,
    with_dsa,
)
from evaluation.papers.experiment import Absent, Experiment
from evaluation.papers.pictured import OVERLAP, Bounds, Maps, Swept
from evaluation.papers.training import PROBE, Row, Training

PAIR = transfer.PAIR
ADDED = with_dsa(PAIR)
SHARED = "after 20 for five networks of three seeds, which fig1, fig3, table4 and table6 share"
PLAIN = tuple((name, "Supervised") for name in PAIR)
FILMS_ADDED = with_dsa(("v-SimCLR", "v-BYOL"))
DETECTED_ADDED = with_dsa(("BYOL",))
EIGHT = "8 classes drawn once; overlap: the share of the ten nearest neighbours of another class"
FILMED = (
    "in small the class of a piece is the film that it is cut from, with colours of its own; three films, 57 pieces "
    "for training and 26 for the test, of which one is 4 points"
)


def drawn(rows: Mapping[str, Row], names: Sequence[str] = PAIR) -> dict[str, Row]:
    """Rows without published numbers; these names, and these with DSA, are measured in small."""
    return {name: replace(row, published={}) for name, row in only((*names, "Supervised"), rows).items()}


EXPERIMENTS: dict[str, Experiment | Absent] = {
    "table1": Training(
        caption="Table I: the inter-class distance, the intra-class variance, and the linear evaluation accuracy of "
        "SSL methods.",
        cost="25 minutes",
        needs=("imagenet",),
        readings=(DISTANCES,),
        rows=TABLE1 | SUPERVISED,
        columns=CROWDING,
        judged_on=ON,
        claims=(
            Claim("self-supervised classes are closer together than supervised ones", "inter-class", CROWDED, -1),
            Claim("and wider", "intra-class", CROWDED, 1),
        ),
    ),
    "table2": Training(
        caption="Table II: the top-1 and top-5 classification accuracies of a linear classifier on ImageNet.",
        cost="2 hours",
        needs=("imagenet",),
        rows=pairs(TABLE2, TABLE2_DSA),
        columns={"top-1": PROBE},
        judged_on=ON,
        claims=(Claim("DSA raises the accuracy", "top-1", with_dsa(TABLE2_DSA)),),
    ),
    "table8": Training(
        caption="Table VIII: the inter-class distance, the intra-class variance of SSL methods, with and without DSA.",
        cost="45 minutes",
        needs=("imagenet",),
        readings=(DISTANCES,),
        rows=pairs(TABLE1, TABLE8_DSA),
        columns={"inter-class": INTER, "intra-class": INTRA},
        judged_on=ON,
        claims=(
            Claim("with DSA classes are farther apart", "inter-class", with_dsa(TABLE8_DSA)),
            Claim("and narrower", "intra-class", with_dsa(TABLE8_DSA), -1),
        ),
    ),
    "table9": Training(
        caption="Table IX: inter-class distance, intra-class variance and accuracy of DSA without components.",
        cost="45 minutes",
        needs=("imagenet",),
        readings=(
            "without SM: no L_con, and sc = 1; without sc: sc = 1",
            "SwAV + DSA without sc has 71.23 in the scan: read as 77.23; in small without SwAV, for the time",
        ),
        rows=components(
            "SimCLR", "simclr", (1.17, 1.15, 70.15), ((1.37, 0.92, 72.09), (1.24, 1.06, 71.06), (1.32, 0.97, 71.67))
        )
        | components(
            "BYOL", "byol", (0.90, 0.65, 71.48), ((1.21, 0.55, 74.95), (0.96, 0.63, 72.13), (1.16, 0.52, 73.74))
        )
        | components(
            "SwAV", "swav", (1.12, 1.01, 75.78), ((1.31, 0.57, 77.84), (1.17, 0.92, 76.06), (1.26, 0.67, 77.23))
        ),
        columns=CROWDING,
        judged_on=ON,
        claims=(
            Claim("DSA raises the accuracy", "top-1", both("DSA", "")),
            Claim("without SM less", "top-1", both("DSA without SM", "DSA"), -1),
            Claim("without sc less", "top-1", both("DSA without sc", "DSA"), -1),
        ),
    ),
    "table10": Training(
        caption="Table X: top-1 accuracies for different selections of f_aux (the prior) and f_s.",
        cost="40 minutes",
        needs=("imagenet",),
        readings=(
            "cosine: M = cos(z_i, z_j), each row normalised to sum to 1, as L_con compares it with such a prior",
            "BEiT's size is not printed: its base model; in small pca and hog, which need no download, for the priors",
        ),
        rows=selected("SimCLR", "simclr", 70.15, 72.09, 72.04, 71.98, 72.06, 70.96)
        | selected("BYOL", "byol", 71.48, 74.95, 74.87, 74.82, 74.49, 73.39)
        | selected("Barlow Twins", "barlow_twins", 73.97, 76.03, 75.94, 75.91, 76.04, 75.88),
        columns={"top-1": PROBE},
        judged_on=ON,
        claims=(
            Claim(
                "another prior is as good",
                "top-1",
                both("DSA, prior hog", "DSA, prior pca") + beside_clip("prior BEiT", "prior SIFT", "prior ResNet-18"),
                0,
            ),
            Claim(
                "the cosine is worse than the MLP",
                "top-1",
                both(f"DSA, {COSINE}", "DSA, prior pca") + beside_clip(COSINE),
                -1,
            ),
        ),
    ),
    "fig1": Maps(
        caption="Fig. 1: distribution of 8 classes in the feature space of SSL methods.",
        cost=f"2 minutes {SHARED}",
        needs=("imagenet",),
        readings=(EIGHT, "in small without SwAV, Barlow Twins and MAE, for the time"),
        rows=drawn(TABLE1 | SUPERVISED),
        judged_on=ON,
        claims=(
            Claim("self-supervised classes overlap more than supervised ones", OVERLAP, PLAIN),
            Claim("are closer together", "inter-class", PLAIN, -1),
            Claim("and wider", "intra-class", PLAIN),
        ),
    ),
    "fig2": Absent(caption="Fig. 2: the pipeline of the proposed DSA.", reason="a drawing, without a measurement"),
    "fig3": Maps(
        caption="Fig. 3: distribution of 8 classes in the feature space of methods with DSA.",
        cost=f"2 minutes {SHARED}",
        needs=("imagenet",),
        readings=(EIGHT, "also without DSA, to compare", "in small without SwAV, Barlow Twins and MAE, for the time"),
        rows=drawn(pairs(TABLE1, TABLE8_DSA)),
        judged_on=ON,
        claims=(
            Claim("with DSA classes overlap less", OVERLAP, ADDED, -1),
            Claim("are farther apart", "inter-class", ADDED),
            Claim("and narrower", "intra-class", ADDED, -1),
        ),
    ),
    "fig4": Swept(
        caption="Fig. 4: distances and variances for values of nu, upsilon, alpha and eta.",
        cost="15 minutes",
        needs=("imagenet",),
        readings=(
            "the paper names the best nu (0.1) and upsilon (100), and the growth from eta = 5 to 10; the text has "
            "no other values: powers of ten, halves and doubles around the default",
            "BYOL + DSA only, 2 epochs in small, for the time",
        ),
        rows=swept("nu", 0.1, 0.01, 1)
        | swept("upsilon", 100, 10, 1000)
        | swept("alpha", 1, 0.5, 2)
        | swept("eta", 20, 5, 10),
        columns={"inter-class": INTER, "intra-class": INTRA},
        judged_on=ON,
        claims=(
            Claim("nu = 0.1 is best", "inter-class", (("nu=0.1", "nu=0.01"), ("nu=0.1", "nu=1"))),
            Claim(
                "upsilon = 100 is best", "inter-class", (("upsilon=100", "upsilon=10"), ("upsilon=100", "upsilon=1000"))
            ),
            Claim("the distance rises with alpha", "inter-class", (("alpha=1", "alpha=0.5"),)),
            Claim("and the variance falls", "intra-class", (("alpha=1", "alpha=0.5"),), -1),
            Claim("the distance rises from eta = 5 to 10", "inter-class", (("eta=10", "eta=5"),)),
            Claim("then not", "inter-class", (("eta=20", "eta=10"),), 0),
        ),
    ),
    "table3": Training(
        caption="Table III: linear evaluation on Kinetics-400.",
        cost="5 minutes after cut_films.py",
        needs=("kinetics400",),
        readings=(
            FILMED,
            "supervised is not trained; without v-MoCo and v-SwAV in small, for the time",
        ),
        rows=transfer.TABLE3,
        columns=transfer.LINEAR,
        judged_on={"small": transfer.FILMS, "paper": "kinetics400"},
        makes=transfer.CUT,
        claims=(Claim("DSA raises the accuracy", "top-1", FILMS_ADDED),),
    ),
    "table4": Training(
        caption="Table IV: semi-supervised accuracies with 1 % and 10 % of ImageNet.",
        cost=f"15 minutes {SHARED}",
        needs=("imagenet",),
        readings=(
            "top-1 only; Supervised, the labels alone, is not trained",
            "in small one draw of the labels, 30 and 10 epochs in place of 50; SimCLR and BYOL only, for the time",
        ),
        rows=transfer.TABLE4,
        columns=transfer.SHARES,
        judged_on=ON,
        claims=tuple(Claim(f"with {share} DSA raises the accuracy", share, ADDED) for share in transfer.SHARES),
    ),
    "table5": Training(
        caption="Table V: fine-tuning on UCF101 and HMDB51.",
        cost="12 minutes after cut_films.py and table3, whose networks it has",
        needs=("kinetics400", "ucf101", "hmdb51"),
        readings=(
            FILMED,
            "VTHCL, TCLR, VideoMoCo, SLIC, MACLR and CVRL are not in sslkit",
            "in small v-SimCLR and v-BYOL with two clips a film, on the films of their pretraining, as UCF101",
            "in small 150 epochs of three steps, rate 0.05, no dropout: the loss of fewer stays near its start",
        ),
        rows=transfer.TABLE5,
        columns=transfer.TUNED,
        judged_on={},
        makes=transfer.CUT,
        claims=tuple(Claim(f"DSA raises the accuracy on {name}", name, FILMS_ADDED) for name in transfer.TUNED),
    ),
    "table6": Training(
        caption="Table VI: few-shot accuracies on FC100, CUB200 and Plant Disease.",
        cost=f"8 minutes {SHARED}",
        needs=("fc100", "cub2010", "plantvillage"),
        readings=(
            "in small letters of new scripts (glyphs) stand for FC100, clipart for CUB200, digits for Plant Disease",
            "in small 600 episodes, classes with too few images left out; SimCLR and BYOL only, for the time",
        ),
        rows=transfer.TABLE6,
        columns=transfer.SHOTS,
        judged_on={},
        claims=tuple(Claim(f"DSA raises {name}", name, ADDED) for name in transfer.SHOTS),
    ),
    "table7": Training(
        caption="Table VII: object detection and instance segmentation.",
        cost="25 minutes",
        needs=("imagenet", "voc07", "voc0712", "coco2017"),
        readings=(
            "in small clipart_boxes as VOC 07, 200 steps; BYOL pretrained on clip art; all else would take hours",
            "SimSiam's AP50 on VOC 07 is 71.3 and SimCLR + DSA's 717.5 in the scan: read as 77.3 and 77.5",
        ),
        rows=transfer.TABLE7,
        columns=transfer.DETECTED,
        judged_on={},
        claims=tuple(
            Claim(f"DSA raises {name}", name, DETECTED_ADDED) for name in transfer.DETECTED if name[-3:] == " AP"
        ),
    ),
    "theorem4.1": Bounds(
        caption="Theorem IV.1: aggregation and separation bound the error.",
        cost="15 minutes, of them 6 for networks that fig1 and fig3 share",
        needs=("imagenet",),
        readings=(
            "eq. 8: contrast is L_NCE - log Q, separation the sum of mu_i mu_j, spread the root of the variance, bound "
            "their sum; its constants are not given, so that only the order of the networks is checked, not the bound",
            "separation sums over all ordered pairs of classes, so that it is by far the largest term",
            "of unit-length features of two views of 1,000 test images; risk is the left side",
            "one seed: the sample is the networks",
        ),
        rows=drawn(pairs(TABLE1, TABLE8_DSA) | SUPERVISED, tuple(TABLE1)),
        judged_on=ON,
        claims=(),
        seeds=(0,),
    ),
}
