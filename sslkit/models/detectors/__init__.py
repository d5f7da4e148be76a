"""Detectors on the backbone of a loaded model: C4, FPN and a plain ViT's pyramid."""
