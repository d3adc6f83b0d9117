"""Places in PostgreSQL's log (LSN): a number, and its text of two hexadecimal halves."""


def lsn_of(text: str) -> int:
    """The number. ValueError."""
    high, slash, low = text.partition("/")
    if not slash:
        raise ValueError(f"not a place in the log of PostgreSQL: {text!r}")
    return int(high, 16) << 32 | int(low, 16)


def lsn_text(lsn: int) -> str:
    """As PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"
