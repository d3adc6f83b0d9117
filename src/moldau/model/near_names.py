"""The known name nearest to one that is unknown, for "did you mean"."""

from collections.abc import Iterable

_LIKENESS_MIN = 0.7


def nearest(name: str, known: Iterable[str], *, likeness_min: float = _LIKENESS_MIN) -> str | None:
    """The known name that is most like `name`, None if none is; capital letters matter only between names that differ in nothing else."""
    from difflib import get_close_matches

    by_folded: dict[str, list[str]] = {}
    for each in known:
        by_folded.setdefault(each.lower(), []).append(each)
    found = get_close_matches(name.lower(), by_folded, n=1, cutoff=likeness_min)
    return get_close_matches(name, by_folded[found[0]], n=1, cutoff=0.0)[0] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known: ``, did you mean 'flights'?``, or nothing."""
    found = nearest(name, known)
    return "" if found is None else f", did you mean '{found}'?"
