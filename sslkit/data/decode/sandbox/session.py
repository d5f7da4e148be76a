"""One image in a decoder, from its opening to its end, and what has broken its budget before in this run."""

import hashlib
import json
import os
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from sslkit.data.decode import budget
from sslkit.data.decode.large import Source
from sslkit.data.decode.sandbox.client import Decoder, Lost, free, hand_back
from sslkit.data.decode.sandbox.messages import Message, nameless, write
from sslkit.data.decode.unreadable import OverBudget, UnreadableImage

# bytes of pixels that the file of a decoder keeps: one large picture would else hold its memory to the end
_SHRUNK = 2**26


@dataclass
class _Refusals:
    """The part of the file of refusals that was read, `length` bytes. content: lengths, and the reasons by key."""

    length: int = 0
    content: tuple[set[int], dict[str, str]] = (frozenset(), {})


@dataclass
class _Habit:
    """The use of images in this process. is_to_read: the last one was read as soon as it was opened."""

    is_to_read: bool = False


_known = _Refusals()
_habit = _Habit()


class Session:
    """An image in a decoder, from its opening to `close`.

    content: of the image, a file or in memory. kind: whose packages it may need. how: the options to open it by.
    Raises OSError, UnreadableImage, MissingPackage.
    """

    def __init__(self, content: Source, kind: str, how: Message) -> None:
        self._file, self._how, self._kind = _open_descriptor(content), how, kind
        self._length = os.fstat(self._file).st_size
        self._decoder: Decoder | None = None
        self._page: int | None = None
        self._broke = "it is closed"
        self.values = 0  # of the image's pixels
        self._first_asked = ""  # after it was opened
        self._read: Message | None = None  # what the decoder said of the pixels that it has written
        try:
            self.description = self._begun()
        except BaseException:
            self.close()
            raise

    def _begun(self) -> Message:
        for is_last in (False, False, True):
            try:
                self._decoder = free(self._kind)
                self._check_refused()
                how = {**self._how, "limit": Image.MAX_IMAGE_PIXELS, "at_once": _habit.is_to_read}
                answer = self.ask("open", (self._file,), **how)
                self._first_asked, self._read = "", answer.pop("read", None)
                return answer
            except Lost as error:
                self._drop()
                if is_last:
                    raise UnreadableImage("the process that decodes it has ended") from error
        raise AssertionError

    def ask(self, do: str, files: tuple[int, ...] = (), **options: Any) -> Message:
        self._first_asked, self._read = self._first_asked or do, None
        seconds = budget.seconds(self._length, self.values if do == "read" else 0)
        if self._decoder is None:
            raise OverBudget(self._broke)
        try:
            return self._decoder.ask(do, budget.WAIT + budget.WAIT_TIMES * seconds, files, **options)
        except OverBudget as error:
            reason = str(error) or f"it needed more than {seconds:,.0f} seconds of the processor"
            self._broke = reason
            self._refuse(reason)
            self._drop()
            raise OverBudget(reason) from error

    def ask_pixels(self, mode: str | None) -> Message:
        """What the decoder says of the pixels, which `read_into` then takes. mode: see `worker`."""
        if self._read is None or mode is not None:
            return self.ask("read", mode=mode)
        self._first_asked, answer, self._read = "read", self._read, None
        return answer

    def turn(self, page: int, place: int) -> Message:
        self._page = page
        self._check_refused()
        return self.ask("turn", page=page, place=place)

    def read_into(self, length: int) -> np.ndarray:
        """The bytes of the pixels, (length,) uint8, that the last answer told of."""
        content, position = np.empty(length, np.uint8), 0
        while position < length and (
            count := os.preadv(self._decoder.pixels, [memoryview(content)[position:]], position)
        ):
            position += count
        if position < length:
            raise UnreadableImage("its decoder gave fewer pixels than it said")
        if length > _SHRUNK:
            os.ftruncate(self._decoder.pixels, 0)
        return content

    def close(self) -> None:
        """Hand the decoder back."""
        if self._decoder is not None:
            _habit.is_to_read = self._first_asked == "read"
            hand_back(self._decoder)
            self._decoder = None
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def __del__(self) -> None:
        self.close()

    def _drop(self) -> None:
        if self._decoder is not None:
            self._decoder.end()
            self._decoder = None

    def _check_refused(self) -> None:
        """Raises OverBudget for what has broken its budget before in this run, in whatever process."""
        lengths, reasons = _load_refused(self._decoder.refused)
        if self._length in lengths and (key := self._key()) in reasons:
            raise OverBudget(reasons[key])

    def _refuse(self, reason: str) -> None:
        line = json.dumps({"length": self._length, "key": self._key(), "reason": reason}).encode() + b"\n"
        os.write(self._decoder.refused, line)  # at the end, whoever else writes

    def _key(self) -> str:
        digest = hashlib.sha256(json.dumps([self._how, self._page], sort_keys=True).encode())
        digest.update(os.pread(self._file, self._length, 0))
        return digest.hexdigest()


def _load_refused(file: int) -> tuple[set[int], dict[str, str]]:
    """The lengths and the reasons, by key, of what broke its budget; read again when the file has grown."""
    size = os.fstat(file).st_size
    if size != _known.length:
        lines = map(json.loads, os.pread(file, size, 0).splitlines())
        records = [(line["length"], line["key"], line["reason"]) for line in lines]
        _known.content = {length for length, *_ in records}, {key: reason for _, key, reason in records}
        _known.length = size
    return _known.content


def _open_descriptor(content: Source) -> int:
    """The descriptor of a file, or of one in memory that has the content."""
    if isinstance(content, (str, Path)):
        file = os.open(content, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        if not stat.S_ISREG(os.fstat(file).st_mode):
            os.close(file)
            raise UnreadableImage("it is no file")
        return file
    file = nameless()
    content.seek(0)
    write(file, content.read())
    return file
