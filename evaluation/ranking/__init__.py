"""Ranking of a zoo for a new task: scores of metrics, their intervals, agreement with the ground truth."""
