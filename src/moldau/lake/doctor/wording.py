"""Numbers and times in the texts of findings and repairs."""

from datetime import timedelta


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """``1 file``, ``2,000 files``, ``3 entries``."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


def span(time: timedelta) -> str:
    """``7 days``, ``36 hours``."""
    hours = time.total_seconds() / 3600
    return counted(round(hours / 24), "day") if hours % 24 == 0 else f"{hours:g} hours"
