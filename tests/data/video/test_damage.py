"""How far damage reaches, in films of places and showings alone."""

import pytest

from sslkit.data.video.damage import Damage
from sslkit.data.video.reader import UnreadableVideo

# In the order of decoding: I0 P3 B1 B2 | I6 B4 B5 P7, an open group of pictures: B4 and B5 refer to P3 and I6.
SHOWN = [0, 3, 1, 2, 6, 4, 5, 7]
KEYS = {0, 6}


def refused(broken: int | None = None, lost: int | None = None) -> list[int]:
    """The frames that are refused, each wanted alone."""
    found = []
    for wanted in SHOWN:
        damage = Damage()
        for place, shown in enumerate(SHOWN):
            if place == lost:
                damage.lost(place)
                continue
            damage.record_frame(place, shown, key=shown in KEYS, broken=place == broken)
            if shown == wanted:
                damage.want(shown, place, shown)
        try:
            damage.check()
        except UnreadableVideo as error:
            assert str(error).startswith(f"frame {wanted} is damaged")
            found.append(wanted)
    return sorted(found)


@pytest.mark.parametrize(
    ("broken", "reached"),
    [
        (None, []),
        (0, [0, 1, 2, 3, 4, 5]),
        (1, [1, 2, 3, 4, 5]),  # those shown before it too, and those behind the next key frame that are shown before
        (3, [2, 4, 5]),
        (4, [4, 5, 6, 7]),  # a damaged key frame mends nothing
        (7, [7]),
    ],
)
def test_damage_reaches_what_is_decoded_after_it_up_to_the_next_key_frame(
    broken: int | None, reached: list[int]
) -> None:
    assert refused(broken=broken) == reached


def test_a_lost_packet_is_damage() -> None:
    assert refused(lost=1) == [1, 2, 4, 5]
    assert refused(lost=7) == []
