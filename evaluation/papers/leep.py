"""leep"""

from evaluation.papers.experiment import Absent, Experiment

EXPERIMENTS: dict[str, Experiment | Absent] = {}
