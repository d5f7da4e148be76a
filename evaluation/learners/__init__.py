"""Learners on frozen features: logistic regression, grids of linear heads, neighbours, episodes."""
