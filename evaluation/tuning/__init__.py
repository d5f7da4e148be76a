"""Training of all weights: one loop, the task that it learns, trials of settings, pixels in memory."""
