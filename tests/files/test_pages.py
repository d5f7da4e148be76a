"""Offline pages: the policy holds the hash of the style, pictures survive, and no name of a file breaks the writing."""

import base64
import hashlib
import io
import re
from pathlib import Path

import numpy as np
from PIL import Image

from sslkit.files import pages


def test_the_policy_allows_the_style_that_is_there(tmp_path: Path) -> None:
    (tmp_path / "page.html").write_text('{% include "head.html" %}<p>{{ name }}</p>')
    style = "p { color: black; }"
    text = pages.open_templates(tmp_path, style=style).get_template("page.html").render(name="<b>")
    digest = base64.b64encode(hashlib.sha256(re.search("<style>(.*)</style>", text).group(1).encode()).digest())
    assert f"style-src 'sha256-{digest.decode()}'" in text and "&lt;b&gt;" in text


def test_a_picture_is_inside(tmp_path: Path) -> None:
    pixels = np.full((8, 6, 3), 200, np.uint8)
    head, _, data = pages.picture_source(Image.fromarray(pixels)).partition(",")
    read = Image.open(io.BytesIO(base64.b64decode(data)))
    assert head == "data:image/webp;base64" and read.size == (6, 8)
    assert abs(np.asarray(read.convert("RGB")).astype(int) - 200).max() <= 4


def test_a_name_that_is_no_text_is_written(tmp_path: Path) -> None:
    assert pages.write_page(tmp_path / "page.html", "name \udcff").read_text() == "name \\udcff"
