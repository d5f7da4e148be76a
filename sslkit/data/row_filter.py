"""Which rows of a table are read: `columns.where="class != blur and (width >= 64 or split == test)"`.

A comparison has a column on its left and a value on its right, each bare or in quotes. A bare number is compared with
the cells that are numbers, all else letter by letter. `in (a, b)`, `not in`, `and`, `or`, `not`, parentheses.
"""

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

from sslkit.data.columns import has_value
from sslkit.errors import UserError

OPTION = "columns.where"
_TOKEN = re.compile(r"""\s*(?:(==|!=|<=|>=|<|>|=|\(|\)|,)|"([^"]*)"|'([^']*)'|([^\s()=!<>,"']+))""")
_COMPARE = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_SAME = {"==": True, "!=": False}
_WORDS = ("and", "or", "not", "in")
_EXAMPLE = 'such as "class != blur and width >= 64"'

Cells = Callable[[str], Sequence[Any]]  # the cells of a column by its name
Keep = Callable[[Cells], list[bool]]  # which rows are kept


@dataclass(frozen=True)
class _Token:
    """kind: an operator or a word of `_WORDS` is its own kind; else "word" or "quoted"."""

    kind: str
    text: str


@dataclass
class _Reader:
    """Reads a filter from left to right."""

    text: str
    tokens: list[_Token] = field(default_factory=list)
    columns: list[str] = field(default_factory=list)
    position: int = 0

    def __post_init__(self) -> None:
        end = 0
        while self.text[end:].strip():
            match = _TOKEN.match(self.text, end)
            if match is None:
                raise self.fault(f"{self.text[end:].strip()[:20]!r} is not closed, or no sign of a filter")
            sign, double, single, word = match.groups()
            quoted = double if double is not None else single
            kind = sign or ("quoted" if quoted is not None else word.lower() if word.lower() in _WORDS else "word")
            self.tokens.append(_Token(kind, sign or (quoted if quoted is not None else word)))
            end = match.end()

    @property
    def kind(self) -> str:
        return self.tokens[self.position].kind if self.position < len(self.tokens) else ""

    def fault(self, what: str) -> UserError:
        return UserError(f"{OPTION}={self.text!r}: {what}; a filter is columns compared with values, {_EXAMPLE}")

    def take(self, *kinds: str) -> str:
        """The text of the next token. Raises UserError if it is of none of these kinds."""
        if self.kind not in kinds:
            after = f" after {self.tokens[self.position - 1].text!r}" if self.position else ""
            there = f"{self.tokens[self.position].text!r}" if self.kind else "it ends"
            wanted = {("word", "quoted"): "a name or a value", (")",): "a closing parenthesis"}
            raise self.fault(f"{there}{after}, where {wanted.get(kinds, ' or '.join(kinds))} is meant")
        self.position += 1
        return self.tokens[self.position - 1].text

    def alternatives(self) -> Keep:
        return self._join("or", self._conditions, any)

    def _conditions(self) -> Keep:
        return self._join("and", self._condition, all)

    def _join(self, word: str, read: Callable[[], Keep], join: Callable[[Any], bool]) -> Keep:
        parts = [read()]
        while self.kind == word:
            self.take(word)
            parts.append(read())
        if len(parts) == 1:
            return parts[0]
        return lambda cells: [join(row) for row in zip(*(keep(cells) for keep in parts), strict=True)]

    def _condition(self) -> Keep:
        if self.kind == "not":
            self.take("not")
            inverted = self._condition()
            return lambda cells: [not is_kept for is_kept in inverted(cells)]
        if self.kind == "(":
            self.take("(")
            inside = self.alternatives()
            self.take(")")
            return inside
        return self._comparison()

    def _comparison(self) -> Keep:
        column = self.take("word", "quoted")
        self.columns.append(column)
        if self.kind == "=":
            raise self.fault("write == for equal")
        sign = self.take(*_SAME, *_COMPARE, "in", "not")
        if sign in _COMPARE:
            limit, compare = self._value(), _COMPARE[sign]
            return lambda cells: [_is_ordered(cell, compare, limit, self, column) for cell in cells(column)]
        is_wanted = _SAME.get(sign, sign.lower() == "in")
        if sign.lower() == "not":
            self.take("in")
        values = [self._value()] if sign in _SAME else self._values()
        return lambda cells: [any(_is_same(cell, value) for value in values) is is_wanted for cell in cells(column)]

    def _values(self) -> list[str | float]:
        self.take("(")
        values = [self._value()]
        while self.kind == ",":
            self.take(",")
            values.append(self._value())
        self.take(")")
        return values

    def _value(self) -> str | float:
        is_bare = self.kind == "word"
        text = self.take("word", "quoted")
        number = _number(text) if is_bare else None
        return text if number is None else number


def parse_filter(text: str) -> Keep:
    """Read a filter. Raises UserError for another text."""
    return _parse(text)[1]


def columns_of_filter(text: str | None) -> tuple[str, ...]:
    """The columns that a filter compares; none of None. Raises UserError for a text that is no filter."""
    return () if text is None else tuple(dict.fromkeys(_parse(text)[0].columns))


def _parse(text: str) -> tuple[_Reader, Keep]:
    reader = _Reader(text)
    keep = reader.alternatives()
    if reader.kind:
        raise reader.fault(f"{reader.tokens[reader.position].text!r} where and, or, or the end is meant")
    return reader, keep


def rows_kept(text: str, cells: Cells, where: str) -> list[int]:
    """The rows of a table that a filter keeps. cells: raises UserError for a column that is not there.

    Raises UserError for a filter that keeps none.
    """
    mask = parse_filter(text)(cells)
    rows = [row for row, is_kept in enumerate(mask) if is_kept]
    if not rows:
        raise UserError(f"{OPTION}={text!r} leaves all of {len(mask):,} rows of {where} out")
    return rows


def _number(value: Any) -> float | None:
    """A finite number, also as a text; None for another value, and for true and false."""
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        return None
    try:
        number = float(value)
    except ValueError:
        return None
    return number if isfinite(number) else None


def _text(cell: Any) -> str:
    return (str(cell).lower() if isinstance(cell, bool) else str(cell).strip()) if has_value(cell) else ""


def _is_same(cell: Any, value: str | float) -> bool:
    return _text(cell) == value if isinstance(value, str) else _number(cell) == value


def _is_ordered(
    cell: Any, compare: Callable[[Any, Any], bool], limit: str | float, reader: _Reader, column: str
) -> bool:
    """Compare a cell with a limit; an empty one is neither below nor above."""
    if not has_value(cell):
        return False
    if isinstance(limit, str):
        return compare(_text(cell), limit)
    number = _number(cell)
    if number is None:
        raise reader.fault(f"{column} holds {_text(cell)[:40]!r}, which is no number, so that it is not in order")
    return compare(number, limit)
