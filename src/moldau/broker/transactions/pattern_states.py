"""A regular expression as a graph of states, for :mod:`moldau.broker.transactions.pattern`.

Known are letters, ``.``, classes (``[a-z]``, ``[^0-9]``, ``\\d \\w \\s`` and their opposites), ``|``, groups, ``* + ? {2} {2,} {2,5}`` with
or without a ``?`` behind them. What goes back by its nature (``\\1``, looking around), anchors and flags are refused.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

STATES_MAX = 2000
_COUNT_MAX = 1000
_DEPTH_MAX = 50
_SPECIAL = frozenset("\\.[](){}*+?|^$")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}

Test = Callable[[str], bool]


class PatternError(ValueError):
    """The pattern is malformed, too large, or asks for what is not known here."""


class State(NamedTuple):
    """A state: by a letter that passes `test` to the next one in number; without a test at once to each of `targets`."""

    test: Test | None
    targets: tuple[int, ...]


def compile_states(text: str) -> list[State]:
    """The states of a pattern; a text begins in the first and matches if it ends in the last. PatternError."""
    return _Compiler(text).states


class _Compiler:
    """Reads a pattern and lays out its states; the last one is the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        fragment = self._alternatives()
        if self._at < len(text):
            raise PatternError(f"')' at {self._at} closes nothing")
        self.states = [*fragment, State(None, ())]

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        letter = self._peek()
        if not letter:
            raise PatternError("the pattern ends too early")
        self._at += 1
        return letter

    # Fragments are lists of states whose targets count from the fragment's first state; they end by falling through to what follows them.

    def _alternatives(self) -> list[State]:
        branches = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            branches.append(self._sequence())
        fragment = branches.pop()
        while branches:
            first = branches.pop()
            after = len(first) + 2
            fragment = [State(None, (1, after)), *_moved(first, 1), State(None, (after + len(fragment),)), *_moved(fragment, after)]
        return _small(fragment)

    def _sequence(self) -> list[State]:
        fragment: list[State] = []
        while self._peek() not in ("", "|", ")"):
            fragment += _moved(self._repeated(), len(fragment))
            _small(fragment)
        return fragment

    def _repeated(self) -> list[State]:
        fragment = self._single()
        while self._peek() in ("*", "+", "?", "{"):
            least, most = self._count()
            if self._peek() == "?":
                self._at += 1
            fragment = _times(fragment, least, most)
        return fragment

    def _count(self) -> tuple[int, int | None]:
        match self._take():
            case "*":
                return 0, None
            case "+":
                return 1, None
            case "?":
                return 0, 1
        end = self._text.find("}", self._at)
        least, comma, most = self._text[self._at : end if end >= 0 else None].partition(",")
        self._at = end + 1
        try:
            lower = int(least)
            upper = (int(most) if most else None) if comma else lower
        except ValueError as error:
            raise PatternError("a count in braces is not a number") from error
        if end < 0 or not 0 <= lower <= (lower if upper is None else upper) <= _COUNT_MAX:
            raise PatternError(f"a count in braces is not from 0 to {_COUNT_MAX}")
        return lower, upper

    def _single(self) -> list[State]:
        match self._take():
            case "(":
                return self._group()
            case "[":
                return [State(self._class(), ())]
            case ".":
                return [State(lambda letter: letter != "\n", ())]
            case "^" | "$":
                raise PatternError("'^' and '$' are only taken at the beginning and at the end")
            case "\\":
                return [State(self._escape(), ())]
            case letter if letter in _SPECIAL:
                raise PatternError(f"'{letter}' at {self._at - 1} stands where it cannot")
            case letter:
                return [State(partial(str.__eq__, letter), ())]

    def _group(self) -> list[State]:
        if self._peek() == "?":
            self._at += 1
            if self._take() != ":":
                raise PatternError("of groups with '?' only (?:...) is taken")
        self._depth += 1
        if self._depth > _DEPTH_MAX:
            raise PatternError("groups are nested too deeply")
        fragment = self._alternatives()
        self._depth -= 1
        if self._peek() != ")":
            raise PatternError("a group is not closed")
        self._at += 1
        return fragment

    def _escape(self) -> Test:
        letter = self._take()
        if letter in "dwsDWS":
            return _kind(letter)
        if letter in _CONTROLS:
            return partial(str.__eq__, _CONTROLS[letter])
        if letter.isalnum():
            raise PatternError(f"'\\{letter}' is not taken")
        return partial(str.__eq__, letter)

    def _class(self) -> Test:
        negated = self._peek() == "^"
        self._at += negated
        tests: list[Test] = []
        while self._peek() != "]" or not tests:
            first = self._take()
            if first == "\\":
                tests.append(self._escape())
            elif self._peek() == "-" and self._text[self._at + 1 : self._at + 2] not in ("]", ""):
                self._at += 1
                last = self._take()
                if last == "\\" or last < first:
                    raise PatternError(f"'{first}-{last}' is no range")
                tests.append(partial(_within, first, last))
            else:
                tests.append(partial(str.__eq__, first))
        self._at += 1
        return partial(_any_of, tuple(tests), not negated)


def _within(first: str, last: str, letter: str) -> bool:
    return first <= letter <= last


def _any_of(tests: tuple[Test, ...], wanted: bool, letter: str) -> bool:
    return any(test(letter) for test in tests) is wanted


def _kind(name: str) -> Test:
    kinds: dict[str, Test] = {
        "d": lambda letter: "0" <= letter <= "9",
        "w": lambda letter: letter.isascii() and (letter.isalnum() or letter == "_"),
        "s": lambda letter: letter in " \t\n\r\f\v",
    }
    return partial(_any_of, (kinds[name.lower()],), name.islower())


def _moved(fragment: list[State], by: int) -> list[State]:
    return [state if not state.targets else State(state.test, tuple(each + by for each in state.targets)) for state in fragment]


def _small(fragment: list[State]) -> list[State]:
    if len(fragment) > STATES_MAX:
        raise PatternError(f"the pattern needs more than {STATES_MAX} states")
    return fragment


def _times(fragment: list[State], least: int, most: int | None) -> list[State]:
    """The fragment `least` times, and then up to `most` times altogether, or any number of times."""
    size = len(fragment)
    if size * max(least, most or 0) > STATES_MAX:
        raise PatternError(f"the pattern needs more than {STATES_MAX} states")
    result: list[State] = []
    for _ in range(least):
        result += _moved(fragment, len(result))
    if most is None:
        at = len(result)
        result += [State(None, (at + 1, at + size + 2)), *_moved(fragment, at + 1), State(None, (at,))]
        return _small(result)
    end = len(result) + (most - least) * (size + 1)
    for _ in range(most - least):
        at = len(result)
        result += [State(None, (at + 1, end)), *_moved(fragment, at + 1)]
    return _small(result)
