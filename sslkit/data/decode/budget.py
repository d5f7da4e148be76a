"""The budget of one image, whatever its file says: memory, time, pages. A small file can ask for them without end.

What a file of an honest camera, scanner or program needs lies far below each number.
"""

MIB = 2**20  # bytes

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


# Of an image in a process of its own. Opening one reads its header, and of some formats the whole file. Decoders keep
# some copies of the pixels, the widest as floats of 8 bytes; the slowest, of JPEG 2000 and LZMA, make some million
# values a second. A file that breaks its budget asks for seconds and gigabytes with a few hundred bytes.
MEMORY = 256 * MIB  # bytes in any case: of the decoders themselves
FILE_COPIES = 4  # of the file's bytes
VALUE_BYTES = 40  # of each value that the header tells, which `large.check_size` has allowed
SECONDS = 5.0  # of the processor in any case: a start, and the packages of a format
VALUES_A_SECOND = 2e6  # as the slowest decoders make
BYTES_A_SECOND = 2e6  # of the file, below what any decoder reads
WAIT = 60.0  # seconds in any case until an answer, and so many times the processor's: others use it, too
WAIT_TIMES = 20  # of the processor's seconds: a machine may have so many processes a core

AT_ONCE = 2**20  # values of a small image, which is read as soon as it is opened: to ask again costs as much

# Of pages that need all before them (frames of animations, which hold what has changed): reading all costs time with
# the square of their number, and the thousandth needs a thousand to be decoded.
PAGES_IN_A_ROW = 1000


def memory(file: int, values: int) -> int:
    """Bytes for an image. file: bytes of it. values: in its pixels as its header tells them; 0 to open it."""
    return MEMORY + FILE_COPIES * file + VALUE_BYTES * values


def seconds(file: int, values: int) -> float:
    """CPU time for an image; as in `memory`."""
    return SECONDS + file / BYTES_A_SECOND + values / VALUES_A_SECOND
