"""The known name that somebody may have meant who wrote another one."""

from collections.abc import Iterable

_LIKENESS_MIN = 0.7


def nearest(name: str, known: Iterable[str], *, likeness_min: float = _LIKENESS_MIN) -> str | None:
    """The known name that is most like `name`, None if none is; capital letters make no difference."""
    from difflib import get_close_matches

    by_folded: dict[str, str] = {}
    for each in known:
        by_folded.setdefault(each.lower(), each)
    found = get_close_matches(name.lower(), by_folded, n=1, cutoff=likeness_min)
    return by_folded[found[0]] if found else None


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """The end of a message about a name that is not known: ``, did you mean 'flights'?``, or nothing."""
    found = nearest(name, known)
    return "" if found is None else f", did you mean '{found}'?"
