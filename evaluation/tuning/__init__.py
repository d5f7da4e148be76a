"""Fine-tuning of all weights: training loop, task, trials of settings, pixels in memory."""

BEST, ALL, NONE = KEEP = ("best", "all", "none")  # of the models of several runs, which are kept to predict with
