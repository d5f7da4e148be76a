"""Tasks beside the core: a room each, of which the core knows nothing but that its `protocols` hold protocols."""

from sslkit import lazy


def families() -> tuple[str, ...]:
    """Return the package of protocols of every room, by listing this folder."""
    return tuple(f"{__name__}.{room}.protocols" for room in lazy.members(__name__))
