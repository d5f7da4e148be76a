"""From a backbone and labelled images to a model that predicts: a tuned network, or a classifier of its features."""
