"""How the text of one option is read. Every function raises OptionError in the option's name."""

from collections.abc import Iterable, Mapping

from moldau.lake.reading.offsets import OptionError

_MILLISECONDS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def spelt_right(given: Mapping[str, str], names: Iterable[str], aliases: Mapping[str, str]) -> dict[str, str]:
    """The options under their own spelling; the JVM hands names over in lower case. One that is not among `names` is refused."""
    spelling = {name.lower(): name for name in names}
    options: dict[str, str] = {}
    for name, value in given.items():
        if name.lower() == "path":
            raise OptionError("path", "there is no path to read; name the topics with subscribe and call load() without arguments")
        if name.lower() not in spelling:
            raise OptionError(name, _unknown(name, spelling))
        spelt = spelling[name.lower()]
        ours = aliases.get(spelt, spelt)
        if ours in options:
            other = next(each for each in spelling.values() if aliases.get(each, each) == ours and each != spelt)
            raise OptionError(spelt, f"cannot be given together with {other}")
        options[ours] = value
    return options


def _unknown(name: str, spelling: Mapping[str, str]) -> str:
    from difflib import get_close_matches

    close = get_close_matches(name.lower(), spelling, n=1, cutoff=0.75)
    if close:
        return f"is not known; is {spelling[close[0]]} meant?"
    return f"is not known; there are {', '.join(spelling.values())}"


def one_of(options: Mapping[str, str], names: Iterable[str]) -> str | None:
    """The one of `names` that is given, if any; two are refused."""
    present = [name for name in names if name in options]
    if len(present) > 1:
        raise OptionError(present[1], f"cannot be given together with {present[0]}")
    return present[0] if present else None


def number(name: str, text: str, least: int) -> int:
    """A whole number."""
    try:
        value = int(text)
    except ValueError:
        raise OptionError(name, f"needs a whole number, not {text!r}") from None
    if value < least:
        raise OptionError(name, f"needs at least {least}, not {value}")
    return value


def flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """``true`` or ``false``."""
    text = options.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise OptionError(name, f"is true or false, not {text!r}")
    return text == "true"


def duration_ms(name: str, text: str) -> int:
    """A duration as Spark writes it: ``15m``, ``90s``, ``500ms``; a bare number is milliseconds."""
    digits = text.strip().lower()
    unit = digits.lstrip("0123456789")
    digits = digits[: len(digits) - len(unit)]
    scale = _MILLISECONDS.get(unit.strip() or "ms")
    if not digits or scale is None:
        raise OptionError(name, f"needs a time such as 15m, 90s or 500ms, not {text!r}")
    return int(digits) * scale


def choice(options: Mapping[str, str], name: str, choices: Iterable[str], default: str) -> str:
    """One of some words, in any case."""
    text = options.get(name, default).strip()
    for each in choices:
        if text.lower() == each.lower():
            return each
    raise OptionError(name, f"is {' or '.join(choices)}, not {text!r}")
