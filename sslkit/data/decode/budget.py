"""What one image may take, whatever its file says: memory, time, pages. A small file can ask for them without end.

What a file of an honest camera, scanner or program needs lies far below each number.
"""

MIB = 2**20

# Of a member of a .zip: what deflate makes of pictures is a tenth of them, and of zeros a thousandth. A black page of a
# scanner may be packed like zeros, and is then smaller than the first number.
UNPACKED = 64 * MIB  # bytes that it may have in any case
TIMES_PACKED = 100  # beyond: so many times its packed bytes


def check_unpacked(unpacked: int, packed: int, is_image: bool) -> None:
    """Raises OSError for a member that has needed too many bytes so far.

    is_image: it begins as an image does.
    """
    if unpacked > UNPACKED and not is_image:
        raise OSError(f"it needed more than {UNPACKED:,} bytes, and does not begin as an image")
    if unpacked > max(UNPACKED, TIMES_PACKED * packed):
        raise OSError(f"it needed more than {UNPACKED:,} bytes and {TIMES_PACKED} times its packed ones")
