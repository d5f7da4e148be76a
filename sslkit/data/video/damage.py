"""Find the decoded frames of a video that damage may have changed."""

from sslkit.data.video.reader import UnreadableVideo


class Damage:
    """The damage seen in one decoding, and the frames that it affects.

    place: of a frame's packet in decoding order. shown: a number that rises in display order, such as the timestamp.
    A frame is refused if it is damaged itself, or was decoded after a damaged frame or a lost packet without a key
    frame between them that comes before it in both orders: it may be predicted from the damage. Some intact frames are
    refused too.
    """

    def __init__(self) -> None:
        self._broken: list[int] = []
        self._keys: list[tuple[int, int]] = []  # place and shown of the key frames
        self._wanted: list[tuple[int, int, int]] = []  # number, place, shown

    def lost(self, place: int) -> None:
        """Record a packet that cannot be decoded."""
        self._broken.append(place)

    def record_frame(self, place: int, shown: int, *, key: bool, broken: bool) -> None:
        """Record a decoded frame. key: a key frame. broken: flagged as damaged by the decoder or the file."""
        if broken:
            self._broken.append(place)
        if key:
            self._keys.append((place, shown))

    def want(self, number: int, place: int, shown: int) -> None:
        """Record that frame `number` will be returned."""
        self._wanted.append((number, place, shown))

    def check(self) -> None:
        """Call after all decoding. Raises UnreadableVideo if damage affects a frame to be returned."""
        for number, position, shown in self._wanted if self._broken else ():
            keys = [key for key, when in self._keys if key <= position and when <= shown]
            if any(broken <= position and not any(broken < key for key in keys) for broken in self._broken):
                raise UnreadableVideo(f"frame {number} is damaged, or is predicted from damage before it")
