"""How far damage reaches in a film: which decoded frames are what the file meant to show."""

from sslkit.data.video_reader import UnreadableVideo


class Damage:
    """What went wrong in one decoding, and the frames that it reaches.

    place: of a frame's packet in the order of decoding. shown: a number that rises in the order of showing, such as
    the timestamp. A frame is refused if it is damaged itself, or was decoded after a damaged one or after a packet that
    was lost, with no key frame between them that comes before it both in decoding and in showing: it may be predicted
    from the damage. Some that are not are refused too.
    """

    def __init__(self) -> None:
        self._broken: list[int] = []
        self._keys: list[tuple[int, int]] = []  # place and showing of the key frames
        self._wanted: list[tuple[int, int, int]] = []  # number, place, showing

    def lost(self, place: int) -> None:
        """The packet there cannot be decoded."""
        self._broken.append(place)

    def decoded(self, place: int, shown: int, *, key: bool, broken: bool) -> None:
        """A frame has been decoded. key: a key frame. broken: the decoder or the file says that it is damaged."""
        if broken:
            self._broken.append(place)
        if key:
            self._keys.append((place, shown))

    def want(self, number: int, place: int, shown: int) -> None:
        """Frame `number` is to be given out."""
        self._wanted.append((number, place, shown))

    def check(self) -> None:
        """Call when everything is decoded. Raises UnreadableVideo if damage reaches a frame that is wanted."""
        for number, place, shown in self._wanted if self._broken else ():
            if any(self._reaches(broken, place, shown) for broken in self._broken):
                raise UnreadableVideo(f"frame {number} is damaged, or is predicted from damage before it")

    def _reaches(self, broken: int, place: int, shown: int) -> bool:
        return broken <= place and not any(broken < key <= place and when <= shown for key, when in self._keys)
