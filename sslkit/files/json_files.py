"""Untrusted JSON: every fault becomes one clear error and none ends the process."""

import json
from pathlib import Path
from typing import Any

from sslkit.errors import UserError
from sslkit.files.regular_files import regular

LARGEST = 2**26  # bytes; enough for a card with the paths of a million unreadable images


def read(path: Path, remedy: str) -> Any:
    """The content of a JSON file. remedy: how to fix a damaged file, for the message.

    Raises UserError if the file cannot be read, is larger than 64 MiB, or is not JSON.
    """
    try:
        size = regular(path).stat().st_size
        if size > LARGEST:
            raise UserError(f"{path} has {size:,} bytes, more than the {LARGEST:,} that sslkit reads as JSON: {remedy}")
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is no JSON ({error}): {remedy}") from error
    return parse(text, path, remedy)


def escaped(content: Any) -> Any:
    """JSON content whose texts `parse` takes: bytes of file names that are no text become \\udcNN."""
    if isinstance(content, str):
        return content.encode(errors="backslashreplace").decode()
    if isinstance(content, dict):
        return {escaped(name): escaped(value) for name, value in content.items()}
    return [escaped(one) for one in content] if isinstance(content, (list, tuple)) else content


def parse(text: str, path: Path, remedy: str) -> Any:
    """The content of a JSON text read from `path`. Raises UserError if it is not JSON."""
    try:
        content = json.loads(text)
        json.dumps(content, ensure_ascii=False).encode()  # halves of surrogate pairs cannot be printed
    except RecursionError as error:
        raise UserError(f"{path} is no JSON that can be read (it is nested too deeply): {remedy}") from error
    except ValueError as error:
        raise UserError(f"{path} is no JSON ({error}): {remedy}") from error
    return content
