"""Backbones: any timm model by name, `package.module:function`, or a module; the width is measured.

The networks for clips are in clips.py.
"""

from sslkit import lazy

__getattr__, __dir__, __all__ = lazy.attributes(
    __name__,
    {
        "NARROW": "sslkit.backbones.builder:NARROW",
        "SMALL": "sslkit.data.resizing:SMALL",
        "Backbone": "sslkit.backbones.base:Backbone",
        "Recipe": "sslkit.backbones.base:Recipe",
        "build": "sslkit.backbones.builder:build",
        "default": "sslkit.backbones.builder:default",
    },
)
