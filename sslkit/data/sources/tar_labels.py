"""The labels of a sample in a tar file: what its .cls, .json and .txt members hold."""

import json
import re
from collections.abc import Sequence
from typing import Any

MOST_BYTES = 2**16  # of a .cls or .json member; a longer one is no label
SHORT = 32  # bytes of a .txt member that can be a number
KEYS = (  # of a label in a .json; the first that is there counts
    "label", "labels", "cls", "class", "class_id", "class_idx", "class_name", "category", "category_id", "target",
)  # fmt: skip
CAPTION = "a text"  # in place of the value of a .txt that is no number
_MOST = 100  # letters of a class name
_LONGEST = 1000  # letters that are kept of a text, which may hold the names of several classes
_MOST_DIGITS = 18  # of a class number
_ANY_KEY = re.compile(rb'"(?:' + "|".join(KEYS).encode() + rb')"')
_FLOAT = re.compile(r"\d{1,18}\.\d*(?:e[+-]?\d\d)?", re.ASCII)


def of_cls(content: bytes) -> list[str] | None:
    """The classes in a .cls file: numbers between spaces or commas, each once and in order, or one name.

    None for -1, which stands for no label. Any other text is returned as it is, and is no class: see `is_class`.
    """
    text = content[:MOST_BYTES].decode("utf-8-sig", errors="replace").strip()
    if text in ("", "-1"):
        return [] if not text else None
    words = text.replace(",", " ").split()
    return (_numbers(words) if len(content) <= MOST_BYTES else None) or [_short(text)]


def of_json(content: bytes, keys: Sequence[str] = KEYS) -> tuple[str, list[str] | None] | None:
    """(key, classes) of an object with one of the keys: a number, a name or a list of them; None for any other .json.

    The classes are None for null, an empty text and negative numbers.
    """
    if keys is KEYS and not _ANY_KEY.search(content):
        return None
    record = _record(content)
    usable = ((key, record[key]) for key in keys if key in record)
    return next(((key, _of_value(value)) for key, value in usable if _is_label(value)), None)


def cells_of_json(content: bytes, keys: Sequence[str]) -> tuple[str | None, ...]:
    """The text under each key of an object, of yes and no true and false; None where there is none."""
    values = map(_record(content).get, keys)
    words = (str(value).lower() if isinstance(value, bool) else value for value in values)
    return tuple(_short(_word(word)) if isinstance(word, (str, int, float)) else None for word in words)


def _record(content: bytes) -> dict[str, Any]:
    """The object of a .json; {} for any other, and for one that is too long."""
    try:
        record = json.loads(content) if len(content) <= MOST_BYTES else {}
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def of_txt(content: bytes) -> list[str] | None:
    """The number in a .txt file, None for -1; CAPTION for anything else."""
    text = content.decode("utf-8-sig", errors="replace").strip()
    if text == "-1":
        return None
    number = _whole(text) if len(content) <= SHORT else None
    return [CAPTION if number is None else str(number)]


def is_number(value: str) -> bool:
    return value.isascii() and value.isdigit() and len(value) <= _MOST_DIGITS


def is_class(value: str) -> bool:
    """Return whether a text can be the name of a class: not a number, a list of numbers, or a caption of many lines."""
    try:
        float(value)
    except ValueError:
        return len(value) <= _MOST and value.isprintable() and any(map(str.isalpha, value)) and value != CAPTION
    return False


def _is_label(value: Any) -> bool:
    simple = (str, int, float, type(None))
    return isinstance(value, simple) or (isinstance(value, list) and all(isinstance(entry, simple) for entry in value))


def _of_value(value: Any) -> list[str] | None:
    """The classes in a value of a .json."""
    if not isinstance(value, list):
        word = _word(value)
        return None if value is None or word == "" or _is_negative(word) else _numbers([word]) or [_short(word)]
    words = [_word(entry) for entry in value if entry is not None]
    are_names = not any(_is_negative(word) or _whole(word) is not None for word in words)
    return _numbers(words) or (sorted(set(map(_short, words))) if are_names else [_short(str(value))])


def _word(value: Any) -> str:
    return str(int(value)) if isinstance(value, bool) else str(value).strip()


def _is_negative(word: str) -> bool:
    return word[:1] == "-" and _whole(word[1:]) is not None


def _numbers(words: Sequence[str]) -> list[str] | None:
    """Whole numbers in order, each once; None if a word is none, and for a row of 0 and 1, which is a vector."""
    numbers = [_whole(word) for word in words]
    if None in numbers or (len(numbers) > 2 and len(set(numbers)) < len(numbers) and set(numbers) <= {0, 1}):
        return None
    return [str(number) for number in sorted(set(numbers))]


def _whole(word: str) -> int | None:
    """The whole number from 0 on, also one written as 3.0."""
    if is_number(word):
        return int(word)
    value = float(word) if _FLOAT.fullmatch(word) else 0.5
    return int(value) if value.is_integer() and value < 2**53 else None


def _short(text: str) -> str:
    return text[:_LONGEST].encode(errors="replace").decode()  # a .json may hold half of a pair of surrogates
