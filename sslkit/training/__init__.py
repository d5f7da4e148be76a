"""Pretraining: one LightningModule for every method, exact resume, and a zoo entry at the end."""
