"""Offline pages: templates whose only style and scripts are our own files, pictures inside, and one file at the end."""

import base64
import hashlib
import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sslkit.files.writing import write_whole

if TYPE_CHECKING:
    from jinja2 import Environment
    from PIL import Image

SHARED = Path(__file__).parent  # of head.html
QUALITY = 70  # of a picture as WebP, where blocks are not seen yet


def open_templates(folder: Path, *, style: str, script: str = "", **options: Any) -> "Environment":
    """The templates of a folder, which may include `head.html`, with `style` and `script` and their hashes.

    style, script: text of our own files. The page's policy allows nothing else. options: of jinja2's Environment.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    loader = FileSystemLoader([folder, SHARED])
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, **options)
    texts = {"style": style, "script": script}
    environment.globals |= {name: Markup(text) for name, text in texts.items()}
    environment.globals |= {f"{name}_hash": hash_of(text) for name, text in texts.items()}
    return environment


def hash_of(text: str) -> str:
    """The hash of a content security policy."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def picture_source(picture: "Image.Image", quality: int = QUALITY) -> str:
    """The picture as data of an `img`."""
    file = io.BytesIO()
    picture.save(file, format="webp", quality=quality, method=2)
    return f"data:image/webp;base64,{base64.b64encode(file.getvalue()).decode()}"


def write_page(path: Path, text: str) -> Path:
    """Write a page, whole or not at all; names of files that are no text stay readable. Raises UserError."""
    with write_whole(path) as partial:
        partial.write_text(text, encoding="utf-8", errors="backslashreplace")
    return path
