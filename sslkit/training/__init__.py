"""Pretraining: one step for every method, exact resume, and a zoo entry at the end."""
