"""The networks of clips under the name by which cards of zoo entries import them; they stand in `sslkit.backbones.clips`."""

from sslkit.backbones.clips import FRAMES, MAKERS, NAMES, build, default, narrow_slow, r3d_18, slow_r18, slow_r50

__all__ = ["FRAMES", "MAKERS", "NAMES", "build", "default", "narrow_slow", "r3d_18", "slow_r18", "slow_r50"]
