"""Words of the page that a reader may not know: one list, from which the words in the tables take their meaning."""

import re
from dataclasses import dataclass
from typing import Any

from evaluation.ranking.consensus import CHANCES


@dataclass(frozen=True)
class Word:
    """pattern: a regular expression of how the word is written. id: of its place in the list."""

    name: str
    pattern: str
    meaning: str

    @property
    def id(self) -> str:
        return "word-" + re.sub(r"[^a-z0-9]+", "-", self.name.casefold()).strip("-")


WORDS = (
    Word(
        "quick k-NN",
        r"quick (?:\d+|k)-NN",
        "Made during training: a vote of the k nearest neighbours (k is in its name) by cosine similarity, "
        "as kNN of the evaluation, on at most some thousand images.",
    ),
    Word(
        "quick probe",
        r"quick probe",
        "Made at the end of training: a linear classifier on the frozen features of at most some thousand images, "
        "with one strength of the penalty. `linear` of the evaluation searches for the strength.",
    ),
    Word(
        "online probe",
        r"online probe",
        "A linear classifier that is trained beside the network and does not change it: the "
        "curve of the accuracy over the epochs.",
    ),
    Word(
        "linear",
        r"\blinear\b(?! classifier)",
        "A linear classifier on frozen features of all training images, trained until it converges; "
        "of recipes/evaluate.py.",
    ),
    Word(
        "kNN",
        r"\bkNN\b|\bknn\b",
        "A vote of the 20 nearest neighbours on frozen features, weighted by similarity; of "
        "recipes/evaluate.py, on held-out test images. As a metric of a ranking: leave-one-out within its images.",
    ),
    Word(
        "RankMe of features",
        r"RankMe of features|\brankme\b",
        "Effective rank of the backbone's features, exp of the entropy of "
        "their singular values: in how many directions they spread. Few means collapsed.",
    ),
    Word(
        "rank of z",
        r"rank of z",
        "RankMe of the embeddings z of views in training, after the projector. It is not RankMe of "
        "the features, and the two cannot be compared.",
    ),
    Word(
        "DSE",
        r"\bDSE\b|\bdse\b",
        "Dense structure estimator: how well patches tell the parts of images apart, without labels. It orders "
        "checkpoints of one run, not networks.",
    ),
    Word("Wilson", r"\b[Ww]ilson\b", "Interval of a share that stays within 0 and 100 %."),
    Word("bootstrap", r"\bbootstrap\b", "Interval from drawing the same rows again with replacement, many times."),
    Word("jackknife", r"\bjackknife\b", "Interval from leaving out a part of the rows at a time."),
    Word("lbfgs", r"\blbfgs\b", "A method that minimises a smooth function; it ends when it has converged."),
    Word(
        "Holm",
        r"\bHolm\b",
        "Makes p-values larger where many pairs are tested, so that chance alone rarely makes one small.",
    ),
    Word(
        "consensus",
        r"\bconsensus\b",
        "Place by the mean over the metrics that score every model; each metric's ranks count as normal scores.",
    ),
    Word("P(best)", r"\bP\(best\)|to be the best\b", CHANCES),
    Word(
        "regret",
        r"\b(?:expected )?regret(?:@\d)?|expected to be lost\b",
        "Accuracy that is lost by taking this model in the place of the best one. 0 is best. Expected regret: see "
        "P(best); regret@1 and @3 are measured.",
    ),
    Word("LogME", r"\blogme\b", "Metric of a ranking: how likely the labels are under a linear model of the features."),
    Word(
        "H score",
        r"\bh_score\b",
        "Metric of a ranking: how far the class means lie apart, against the spread of the features.",
    ),
    Word(
        "crowding",
        r"\bcrowding\b",
        "How near the classes' means lie (inter_class_distance) and how wide each class is (intra).",
    ),
    Word(
        "t-SNE",
        r"\bt-SNE\b",
        "A map of the features in the plane that keeps neighbours together. Distances and areas have no meaning.",
    ),
    Word("top1", r"\btop1\b", "Share of images whose first answer is right."),
)
_ANY = re.compile("|".join(f"(?P<w{i}>{word.pattern})" for i, word in enumerate(WORDS)))


def link_words(text: str) -> Any:
    """Return the text as markup in which each known word leads to its place in the list."""
    from markupsafe import Markup, escape

    parts, end = [], 0
    for match in _ANY.finditer(text):
        word = WORDS[int(match.lastgroup[1:])]
        parts += [
            escape(text[end : match.start()]),
            Markup('<a class="word" href="#{}">{}</a>').format(word.id, match[0]),
        ]
        end = match.end()
    return Markup("").join([*parts, escape(text[end:])])


def meaning(text: str) -> str:
    """Return the meaning of the first known word of a text; "" without one."""
    match = _ANY.search(text)
    return WORDS[int(match.lastgroup[1:])].meaning if match else ""
