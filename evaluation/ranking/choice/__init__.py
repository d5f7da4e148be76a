"""The choice after a ranking: the best layer, and the best model of those tuned in rounds."""
