"""DICOM files: their pixels in the units of the modality, such as Hounsfield's."""

import struct
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from sslkit.data.decode.fill import Spans
from sslkit.data.decode.large import Source, check_inflated, rewound
from sslkit.data.decode.planes import Planes
from sslkit.data.decode.unreadable import MissingPackage, UnreadableImage

LENGTH = 132  # bytes at the start that tell a DICOM file: a preamble, and its mark
_MARK = b"DICM"
_PIXELS = ("PixelData", "FloatPixelData", "DoubleFloatPixelData")
_ITEM, _ITEM_TAG = struct.Struct("<4sI"), b"\xfe\xff\x00\xe0"  # before each fragment: its tag and length


def is_dicom(start: bytes) -> bool:
    """Return whether a file with these first `LENGTH` bytes is a DICOM file."""
    return start[LENGTH - len(_MARK) : LENGTH] == _MARK


class DicomPlanes(Planes):
    """The frames of a DICOM file: stored values times slope plus intercept, MONOCHROME1 inverted, colours as RGB.

    A window for display (VOI) is not applied: `range` is one for the whole data set.
    most: pixels that are allowed, see `large.check_size`; they limit what a deflated file may hold.
    Raises MissingPackage, TooLarge, and UnreadableImage for a file without an image.
    """

    has_places = True

    def __init__(self, source: Source, most: int | None) -> None:
        try:
            import pydicom
        except ImportError as error:
            raise MissingPackage("reading DICOM", "pydicom", "dicom") from error
        _check_deflated(source, most)
        about = pydicom.dcmread(rewound(source), defer_size=2**16)
        if not any(name in about for name in _PIXELS):
            raise UnreadableImage("a DICOM file without an image")
        self._about, self._frame = about, 0
        kind = about.PhotometricInterpretation
        colours = 3 if about.SamplesPerPixel == 3 or kind == "PALETTE COLOR" else 1
        has_units = any(name in about for name in ("RescaleSlope", "ModalityLUTSequence"))
        has_units = has_units or "PerFrameFunctionalGroupsSequence" in about
        is_deep = has_units or about.get("BitsAllocated", 8) > 8
        super().__init__((about.Columns, about.Rows), colours, colours=colours, has_alpha=False, is_deep=is_deep)
        self.itemsize = about.get("BitsAllocated", 8) // 8 or 1
        self.n_frames = int(about.get("NumberOfFrames", 1) or 1)
        self.is_inverted = kind == "MONOCHROME1"
        self._place = 0

    def seek(self, page: int, place: int = 0) -> None:
        """place: of the fragment that is the frame; 0: it is looked for."""
        if page >= self.n_frames:
            raise EOFError(f"there is no frame {page}")
        self._frame, self._place = page, place

    def frames(self) -> int:
        """The number of frames, as far as there are bytes or fragments for them."""
        if self._about.file_meta.TransferSyntaxUID.is_encapsulated:
            return min(self.n_frames, len(self._fragments()))
        about = self._about
        stored = next(about[name].value for name in _PIXELS if name in about)
        bits = about.Rows * about.Columns * about.SamplesPerPixel * about.get("BitsAllocated", 8)
        return min(self.n_frames, 8 * len(stored) // max(1, bits))

    def places(self) -> np.ndarray | None:
        """(P, 2) int64 number of each frame, and its fragment; None where one has several that only a search tells."""
        frames = self.frames()
        fragments = self._fragments() if self._about.file_meta.TransferSyntaxUID.is_encapsulated else []
        if not fragments or "ExtendedOffsetTable" in self._about or self._offsets():
            return np.stack([np.arange(frames), np.zeros(frames, np.int64)], 1)
        if frames > 1 and len(fragments) == self.n_frames:
            return np.array(list(enumerate(fragments)), np.int64)
        return None

    def _offsets(self) -> list[int]:
        """The table at the start of what is encapsulated."""
        from pydicom.encaps import parse_basic_offsets

        return parse_basic_offsets(self._about.PixelData)

    def _fragments(self) -> list[int]:
        """The places of the fragments in what is encapsulated."""
        content, starts = self._about.PixelData, []
        position = _ITEM.size + _ITEM.unpack_from(content, 0)[1]
        while position + _ITEM.size <= len(content) and content[position : position + 4] == _ITEM_TAG:
            starts.append(position)
            position += _ITEM.size + _ITEM.unpack_from(content, position)[1]
        return starts

    def _frame_values(self) -> np.ndarray:
        from pydicom.encaps import encapsulate
        from pydicom.pixels import pixel_array

        if not self._place:
            return pixel_array(self._about, index=self._frame)
        content, start = self._about.PixelData, self._place + _ITEM.size
        length = _ITEM.unpack_from(content, self._place)[1]
        self._about.PixelData, self._about.NumberOfFrames = encapsulate([content[start : start + length]]), 1
        try:
            return pixel_array(self._about, index=0)
        finally:
            self._about.PixelData, self._about.NumberOfFrames = content, self.n_frames

    @property
    def tagged(self) -> Spans:
        """PixelPaddingValue, or from it to its limit, in the units of the frame."""
        ends = [self._about.get("PixelPaddingValue")]
        ends += [self._about.get("PixelPaddingRangeLimit", ends[0])]
        if self.colours != 1 or None in ends:
            return ()
        # Written by some as unsigned numbers where the pixels are signed, and the other way round
        kind = "i" if self._about.get("PixelRepresentation") else "u"
        stored = np.array([int(end) for end in ends], np.int64).astype(f"{kind}{self.itemsize}")
        values = self._in_units(stored)
        return ((float(values.min()), float(values.max())),)

    def _in_units(self, stored: np.ndarray) -> np.ndarray:
        from pydicom.pixels import apply_modality_lut

        return apply_modality_lut(stored, self._units())

    def _units(self) -> Any:
        """The part of the file that has slope and intercept: that of the frame, of all frames, or the file itself."""
        of_frames = self._about.get("PerFrameFunctionalGroupsSequence") or []
        groups = [*of_frames[self._frame : self._frame + 1], *(self._about.get("SharedFunctionalGroupsSequence") or [])]
        units = (unit for group in groups for unit in group.get("PixelValueTransformationSequence") or [])
        return next(units, self._about)

    def _read_planes(self) -> np.ndarray:
        from pydicom.pixels import apply_color_lut

        values = self._frame_values()
        if self._about.PhotometricInterpretation == "PALETTE COLOR":
            values = apply_color_lut(values, self._about)
            values = (values >> 8).astype(np.uint8) if values.dtype == np.uint16 else values
        elif self.colours == 1:
            values = self._in_units(values)
        return values[None] if values.ndim == 2 else values.transpose(2, 0, 1)


def _check_deflated(source: Source, most: int | None) -> None:
    """Raise TooLarge for a deflated file of more bytes than are allowed: pydicom inflates it whole as it opens it."""
    from pydicom.filereader import _read_command_set_elements, _read_file_meta_info, read_preamble
    from pydicom.uid import DeflatedExplicitVRLittleEndian

    with open(source, "rb") if isinstance(source, (str, Path)) else nullcontext(rewound(source)) as file:
        read_preamble(file, False)
        if _read_file_meta_info(file).get("TransferSyntaxUID") == DeflatedExplicitVRLittleEndian:
            _read_command_set_elements(file)
            check_inflated(file, most)
