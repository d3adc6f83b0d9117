"""What pictures as text have in common. Pure."""

from collections.abc import Iterable


def document(width: int, height: int, parts: Iterable[str]) -> str:
    """The whole file, on a white ground."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
    )
    return "\n".join((*head, *parts, "</svg>")) + "\n"


def shortened(text: str, length: int) -> str:
    """At most so many characters of a text."""
    return text if len(text) <= length else f"{text[: length - 3]}..."
