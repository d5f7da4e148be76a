"""Measures of features, kNN, logistic regression, order without ties, intervals, schedules, captions of pictures."""
