"""Fine-tuning of all weights: training loop, task, trials of settings, pixels in memory."""
