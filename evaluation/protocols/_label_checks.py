"""Checks of a subject's labels before any feature is extracted: what a classifier could not learn from."""

from evaluation.datasets._labels import check_classes, check_labels, occurring_classes
from evaluation.protocols.base import Subject
from sslkit.data.sources.class_names import refuse_classes


def check_train_and_test(subject: Subject, protocol: str, *, several: bool = False) -> None:
    """Check that a classifier can learn from the subject's training images and be judged by its test images.

    several: the protocol takes several labels an image. Raises UserError for missing labels, fewer than two classes to
    learn, and test classes that are in no training image.
    """
    train = [subject.open_split(name) for name in subject.learns_from]
    test = subject.open_split(subject.test_split)
    for split in (*train, test):
        check_labels(split, protocol, several=several)
    check_classes(train, protocol)
    if test.y.ndim == 1:
        learned = {name for split in train for name in occurring_classes(split)}
        unknown = [name for name in occurring_classes(test) if name not in learned]
        refuse_classes(unknown, f"{test.name} ({test.split})")
