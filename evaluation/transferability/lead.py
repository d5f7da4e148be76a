"""LEAD: evolution of a classifier's logits during fine-tuning, by a linear ODE. A reconstruction."""

from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from evaluation.transferability._scatter import by_class, varying
from evaluation.transferability.base import Sample, Score
from sslkit.data.held_out import draw_folds
from sslkit.errors import UserError
from sslkit.options.ranges import Positive, Several

FLOOR = 1e-12  # of a probability, whose logarithm would else be infinite
PER_CLASS = 64  # images in the average of the empirical kernel
WIDTHS = (1024, 2048)  # of the random head


def evolve(init: Tensor, y: Tensor, rates: Tensor, time: float = 1.0) -> Tensor:
    """Return the probability (N,) of each image's own label at `time`: a share 1 - e^(-rate t) is learnt.

    init: (N, C) probabilities at the start. rates: (C,) eta lambda_k of each class.
    """
    unlearnt = torch.exp(-rates * time)[y]
    return (1 - unlearnt) + unlearnt * init[torch.arange(len(y), device=y.device), y]


def analytic_rates(x: Tensor, y: Tensor, n_classes: int) -> Tensor:
    """Return lambda_k = mean ||x_i||^2 / D (C,) of each class: the limit kernel of a random bias-free ReLU head."""
    return _class_means(x.square().sum(1) / max(x.shape[1], 1), y, n_classes)


def empirical_rates(x: Tensor, y: Tensor, n_classes: int, rng: torch.Generator) -> Tensor:
    """Return lambda_k (C,), the mean eigenvalue of the neural tangent kernel of up to 64 images of a class.

    This is the mean squared gradient of the summed logits of a random head D-1024-2048-C. Its weights are scaled by
    1 / sqrt(width), and the sum over layers and classes divided by their number: 1 for a standardised image.
    """
    rows, position = by_class(y, torch.randperm(len(y), generator=rng).to(y.device))
    rows = rows[position < PER_CLASS]
    sizes = (x.shape[1], *WIDTHS, n_classes)
    weights = [torch.randn(b, a, generator=rng, dtype=x.dtype).to(x.device) for a, b in pairwise(sizes)]
    squares = torch.cat([gradient_norms(x[some], weights) for some in rows.split(1024)])
    return _class_means(squares / (len(weights) * n_classes), y[rows], n_classes)


def gradient_norms(x: Tensor, weights: list[Tensor]) -> Tensor:
    """Return the squared norm (n,) of the gradient, by all weights, of the summed outputs of a bias-free ReLU network.

    Layer l: relu(W_l a / sqrt(fan_in)) sqrt(2). Its gradient outer(delta_l, a) has a norm without the outer product.
    """
    inputs, open_units = [x / max(x.shape[1], 1) ** 0.5], []
    for weight in weights[:-1]:
        before = inputs[-1] @ weight.T
        open_units.append(before > 0)
        inputs.append(before.clamp_min(0) * (2 / len(weight)) ** 0.5)
    delta = torch.ones(len(x), len(weights[-1]), dtype=x.dtype, device=x.device)
    total = delta.square().sum(1) * inputs[-1].square().sum(1)
    for k in range(len(weights) - 2, -1, -1):
        delta = (delta @ weights[k + 1]) * open_units[k] * (2 / len(weights[k])) ** 0.5
        total += delta.square().sum(1) * inputs[k].square().sum(1)
    return total


def ridge_scores(x: Tensor, y: Tensor, folds: Tensor, n_classes: int, ridge: float = 1.0) -> Tensor:
    """Return predictions (N, C) of ridge regression onto one-hot labels, fitted without the image's fold.

    x: (N, D) with column means 0. folds: (N,) int64. ridge: the penalty over D. O(N D^2 + folds D^3), D at most N: the
    fit of a fold comes from sums over all rows, or, if it has fewer rows than columns, from one fit to all rows.
    """
    penalty = ridge * max(x.shape[1], 1)
    if x.shape[1] > len(x):
        values, vectors = torch.linalg.eigh(x @ x.T)
        x = vectors * values.clamp_min(0).sqrt()
    targets = one_hot(y, n_classes).to(x.dtype)
    shares = targets.mean(0)
    targets -= shares
    gram = x.T @ x
    gram.diagonal().add_(penalty)
    products = x.T @ targets
    factor = _cholesky(gram, ridge)
    residual = targets - x @ torch.cholesky_solve(products, factor)
    scores = torch.empty_like(targets)
    for fold in torch.unique(folds).tolist():
        rows = (folds == fold).nonzero()[:, 0]
        if len(rows) > x.shape[1]:
            scores[rows] = _refit(x[rows], targets[rows], gram, products, len(x), ridge)
        else:
            scores[rows] = targets[rows] - _left_out(x[rows], residual[rows], factor, len(x), ridge)
    return scores.add_(shares)


def _refit(x: Tensor, targets: Tensor, gram: Tensor, products: Tensor, n: int, ridge: float) -> Tensor:
    """Return predictions for the rows x (n_f, D) of the fit to the n - n_f others.

    gram: (D, D) with the penalty, and products: (D, C), of all n rows, of which x and the targets have mean 0.
    """
    others = n - len(x)
    mean, target = -x.sum(0) / others, -targets.sum(0) / others  # of the others
    gram = torch.addmm(gram, x.T, x, alpha=-1).sub_(others * torch.outer(mean, mean))
    products = torch.addmm(products, x.T, targets, alpha=-1).sub_(others * torch.outer(mean, target))
    return torch.addmm(target, x - mean, torch.cholesky_solve(products, _cholesky(gram, ridge)))


def _left_out(x: Tensor, residual: Tensor, factor: Tensor, n: int, ridge: float) -> Tensor:
    """Return the residuals of rows x (n_f, D) for the fit without them: (I - H)_ff^-1 times those of the full fit.

    H is the hat matrix with an intercept. factor: Cholesky, of the full fit.
    """
    half = torch.linalg.solve_triangular(factor, x.T, upper=False)
    left = torch.eye(len(x), dtype=x.dtype, device=x.device) - half.T @ half - 1 / n
    without, singular = torch.linalg.solve_ex(left, residual)
    if singular:
        raise _too_small(ridge)
    return without


def _cholesky(gram: Tensor, ridge: float) -> Tensor:
    factor, failed = torch.linalg.cholesky_ex(gram)
    if failed:
        raise _too_small(ridge)
    return factor


def _too_small(ridge: float) -> UserError:
    return UserError(f"lead: ridge={ridge:g} is too small for these features: raise it")


def svm_scores(x: Tensor, y: Tensor, folds: Tensor, n_classes: int, seed: int) -> Tensor:
    """Return margins (N, C) of linear one-vs-rest SVMs, fitted without the image's fold."""
    from sklearn.svm import LinearSVC

    scores = torch.zeros(len(x), n_classes, dtype=x.dtype)
    x = x if x.shape[1] else x.new_zeros(len(x), 1)  # scikit-learn requires a column: each SVM is its intercept
    data, labels = x.cpu().numpy(), y.cpu().numpy()
    for fold in torch.unique(folds).tolist():
        held = (folds == fold).cpu()
        train_labels = labels[~held.numpy()]
        for k in range(n_classes):
            right = train_labels == k
            if not right.any() or right.all():
                scores[held, k] = float(right.all())
                continue
            svm = LinearSVC(dual="auto", random_state=seed, tol=1e-3).fit(data[~held.numpy()], right)
            scores[held, k] = torch.from_numpy(svm.decision_function(data[held.numpy()]))
    return scores.to(x.device)


def score(
    sample: Sample,
    *,
    init: Literal["ridge", "svm"] = "ridge",
    kernel: Literal["analytic", "empirical"] = "analytic",
    eta: Positive = 1.0,
    time: Positive = 1.0,
    ridge: Positive = 1.0,
    folds: Several = 5,
) -> Score:
    """mean_i ln F_i[y_i], F_i = (1 - e^(-eta lambda_k t)) onehot(y_i) + e^(-eta lambda_k t) p_i, k = y_i.

    A reconstruction: no code was published, and the paper leaves eta and the scale of lambda open. Here x is
    standardised, p comes from folds that leave the image out, lambda_k is 1 for an average image, and eta = t = 1.
    init: model of p: "ridge" onto one-hot labels (closed form), or "svm", one linear SVM per class; negative scores
        are set to 0 and rows divided by their sum.
    kernel: lambda_k as mean ||x_i||^2 / D of the class ("analytic"), or "empirical", from a random head's gradients.
    ridge: the penalty over D. folds: at most N.

    Range: ln(1 - e^(-eta lambda t)) to 0, for eta = t = 1 mostly -0.5 to 0. Higher is better.
    Cost: O(N D^2 + folds D^3), D at most N; "svm" fits C times `folds` classifiers, "empirical" adds
        O(min(N, 64 C) 1024 (D + 2048)).
    Source: Hu et al., LEAD: Exploring Logit Space Evolution for Model Selection, CVPR 2024; reconstruction.
    Not for: comparison with the paper's numbers.
    """
    y, c = sample.labels, sample.n_classes
    x = _standardise(sample.features)
    fold = draw_folds(y, min(folds, len(y)), sample.generator("lead folds"), sample.groups)
    raw = ridge_scores(x, y, fold, c, ridge) if init == "ridge" else svm_scores(x, y, fold, c, sample.seed)
    start = raw.clamp(FLOOR, 1)
    start /= start.sum(1, keepdim=True)
    head = sample.generator("lead head")
    rates = analytic_rates(x, y, c) if kernel == "analytic" else empirical_rates(x, y, c, head)
    terms = evolve(start, y, eta * rates, time).clamp_min(FLOOR).log()
    right = float((start.argmax(1) == y).double().mean())
    diagnostics = {"initial_accuracy": right, "rate_min": float(rates.min()), "rate_max": float(rates.max())}
    return Score(float(terms.mean()), {**diagnostics, "reconstruction": True}, (), terms)


def _class_means(values: Tensor, y: Tensor, n_classes: int) -> Tensor:
    sums = torch.zeros(n_classes, dtype=values.dtype, device=values.device).index_add_(0, y, values)
    return sums / torch.bincount(y, minlength=n_classes)


def _standardise(x: Tensor) -> Tensor:
    mean = x.mean(0)
    x -= mean
    std = x.square().mean(0).sqrt_()
    is_varying = varying(std, mean, len(x))
    return x.div_(std) if is_varying.all() else x[:, is_varying] / std[is_varying]
