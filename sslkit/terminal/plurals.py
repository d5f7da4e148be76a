"""A number with its noun."""


def counted(number: int, noun: str) -> str:
    """Return `1 epoch`, `6 epochs`, `8,000 images`, `2 classes`."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"
