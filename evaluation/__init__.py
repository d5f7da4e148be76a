"""Protocols and transferability metrics for sslkit's backbones. It imports sslkit; sslkit never imports it."""
