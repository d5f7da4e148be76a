"""How likely each tuned model is the best, by its accuracy on held-out images.

found = beliefs(rounds, planned=3)
found.best["byol"]  # P(byol is the best of those tuned), which sum to 1

A Bayesian linear model: model i has an accuracy of m + theta_i after the last round, of which y_i was measured,

    theta_i ~ N(0, s^2),   y ~ N(m + theta, S),

s being the spread of the models, over which P(best) is averaged by its likelihood. S are the variances and covariances
of the held-out images, the same for all models, of the seeds, and of the steps that were not made: a model dropped
earlier is taken to gain as the others did, give or take STEP_NOISE, whose variance doubles with each halving.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from evaluation.ranking.choice.rounds import Arm, Round
from evaluation.results.choice import level_scores
from evaluation.results.statistics import generator

# Standard deviations over sqrt(p (1 - p)), p the accuracy (recipes/benchmarks/ranking and constants.json):
SEED_NOISE = 0.05  # between seeds; by the present truth 0.041 (0.02 to 0.07 by task), by the one before 0.05
STEP_NOISE = 0.1  # between models, of the accuracy after half of the steps, beside that after all of them
# seeds that count as much as a model's own for its variance: a guess, as one to three seeds know little of it
USUAL = 4
SPREADS = np.geomspace(0.01, 0.3, 25)  # of the models
LEVEL = 1.0  # standard deviation of the level m: accuracies lie within 1, so it is as good as unknown
DRAWS = 4000  # a probability of 0.5 has a standard error of 0.008


@dataclass(frozen=True, eq=False)
class Beliefs:
    """regret: {model: accuracy expected to be lost by taking it}. best: {model: probability that it is the best}."""

    regret: Mapping[str, float]
    best: Mapping[str, float]

    def order(self) -> list[str]:
        """Return the models, lowest regret first, then highest probability; equal ones as they came."""
        names = list(self.regret)
        regret, best = (level_scores(list(values.values())) for values in (self.regret, self.best))
        return [names[row] for row in np.lexsort((-best, regret))]


def beliefs(rounds: Sequence[Round], planned: int) -> Beliefs | None:
    """Return what rounds of fine-tuning say of the models that did not diverge.

    planned: number of rounds until one model is left, each with twice the steps of the one before.
    None if the correct images are not known (several labels per image).
    Source: Gelman et al., Bayesian Data Analysis, 3rd ed., 2013, section 5.4 (a normal hierarchy, spread on a grid).
    """
    last = _last_arms(rounds)
    if not last or any(arm.right is None for arm, _ in last.values()):
        return None
    y, noise = final_accuracies(rounds, last), noise_of(list(last.values()), planned)
    likelihoods, regrets, draws = [], [], []
    rng = generator(0, "beliefs of successive halving")
    standard = rng.standard_normal((DRAWS, len(y)))
    standard -= standard.mean(0)  # so that expected accuracies are exact, and equal models have equal regrets
    for spread in SPREADS:
        mean, covariance, likelihood = posterior(y - y.mean(), noise, spread**2)
        theta = mean + standard @ np.linalg.cholesky(covariance).T
        likelihoods.append(likelihood), regrets.append(theta.max(1).mean() - mean), draws.append(theta.argmax(1))
    weights = np.exp(np.array(likelihoods) - max(likelihoods))
    weights /= weights.sum()
    shares = np.stack([np.bincount(best, minlength=len(y)) / DRAWS for best in draws])
    return Beliefs(
        dict(zip(last, (weights @ np.stack(regrets)).tolist(), strict=True)),
        dict(zip(last, (weights @ shares).tolist(), strict=True)),
    )


def posterior(y: np.ndarray, noise: np.ndarray, variance: float) -> tuple[np.ndarray, np.ndarray, float]:
    """Return mean (M,) and covariance (M, M) of theta, and the log-likelihood of y up to a constant.

    y: (M,) around 0. noise: (M, M). variance: of theta before y was seen; the level is unknown.
    """
    before = variance * np.eye(len(y))
    whole = before + noise + LEVEL**2
    gain = variance * np.linalg.inv(whole)
    likelihood = -(y @ np.linalg.solve(whole, y) + np.linalg.slogdet(whole)[1]) / 2
    return gain @ y, before - variance * gain, float(likelihood)


def final_accuracies(rounds: Sequence[Round], last: Mapping[str, tuple[Arm, int]]) -> np.ndarray:
    """Return accuracies (M,) in the last round; of models dropped before it, plus the mean gain of the others."""
    gains = np.zeros(len(rounds))
    for number in range(len(rounds) - 2, -1, -1):
        before = {arm.model: arm.value for arm in rounds[number].arms if len(arm.values)}
        after = [arm.value - before[arm.model] for arm in rounds[number + 1].arms if len(arm.values)]
        gains[number] = gains[number + 1] + (np.mean(after) if after else 0)
    return np.array([arm.value + gains[number] for arm, number in last.values()])


def noise_of(last: Sequence[tuple[Arm, int]], planned: int) -> np.ndarray:
    """Return the covariance (M, M) of the accuracies: by images or groups, seeds, steps. last: arms, their rounds."""
    right = np.stack([arm.by_unit for arm, _ in last])
    n = right.shape[1]
    p = (right.sum(1) + 0.5) / (n + 1)
    each = p * (1 - p)  # one more image, right with p, so that equal models and perfect ones are not certain
    images = (np.atleast_2d(np.cov(right, ddof=0)) * n + np.diag(each)) / (n + 1)
    seeds = [_of_seeds(arm.values, SEED_NOISE**2 * unit) for (arm, _), unit in zip(last, each, strict=True)]
    halvings = planned - 1 - np.array([number for _, number in last])
    return images / n + np.diag(seeds + each * STEP_NOISE**2 * (2.0**halvings - 1))


def _of_seeds(values: np.ndarray, usual: float) -> float:
    """Return the variance of the mean over seeds (S,): their own variance, drawn towards the usual one."""
    squares = np.square(values - values.mean()).sum()
    return float((USUAL * usual + squares) / (USUAL + len(values) - 1) / len(values))


def _last_arms(rounds: Sequence[Round]) -> dict[str, tuple[Arm, int]]:
    """Return {model: (its arm in its last round, the place of this round)}, without models that diverged there."""
    last = {arm.model: (arm, number) for number, now in enumerate(rounds) for arm in now.arms}
    return {name: pair for name, pair in last.items() if len(pair[0].values)}
