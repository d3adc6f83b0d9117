"""Regular expressions that take linear time, as RE2's do in Kafka: a peer's pattern is matched on the broker's thread.

Python's own matcher goes back and tries again, so that some short patterns take longer than the age of the universe. Here a pattern
becomes a graph of states, and a text moves a set of them along, letter by letter; sets that were seen before are looked up. Known are
letters, ``.``, classes (``[a-z]``, ``[^0-9]``, ``\\d \\w \\s`` and their opposites), ``|``, groups, ``* + ? {2} {2,} {2,5}`` with or
without a ``?`` behind them, and ``^`` and ``$`` at the ends. What goes back by its nature (``\\1``, looking around) and flags are refused.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

LENGTH_MAX = 1000
STATES_MAX = 2000
KEPT_MAX = 20_000
"""Steps from a set of states by a letter that are remembered."""
_COUNT_MAX = 1000
_SPECIAL = frozenset("\\.[](){}*+?|^$")
_CONTROLS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f", "v": "\v", "a": "\a"}

Test = Callable[[str], bool]
StateSet = frozenset[int]


class PatternError(ValueError):
    """The pattern is malformed, too large, or asks for what is not known here."""


class _State(NamedTuple):
    """A state: by a letter that passes `test` to the next one in number; without a test at once to each of `targets`."""

    test: Test | None
    targets: tuple[int, ...]


class Pattern:
    """A pattern that a text as a whole may match."""

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_MAX:
            raise PatternError(f"a pattern of {len(text)} letters, at most {LENGTH_MAX} are taken")
        self._states = _Compiler(_without_ends(text)).states
        self._start = self._closure([0])
        self._kept: dict[tuple[StateSet, str], StateSet] = {}

    def matches(self, text: str) -> bool:
        """Whether all of `text` matches."""
        states = self._start
        for letter in text:
            step = states, letter
            found = self._kept.get(step)
            if found is None:
                if len(self._kept) >= KEPT_MAX:
                    self._kept.clear()
                found = self._kept[step] = self._closure([each + 1 for each in states if self._passes(each, letter)])
            states = found
            if not states:
                return False
        return len(self._states) - 1 in states

    def _passes(self, state: int, letter: str) -> bool:
        test = self._states[state].test
        return test is not None and test(letter)

    def _closure(self, begin: list[int]) -> StateSet:
        found: set[int] = set()
        while begin:
            state = begin.pop()
            if state not in found:
                found.add(state)
                begin.extend(self._states[state].targets)
        return frozenset(found)


def _without_ends(text: str) -> str:
    """Without a ``^`` before and a ``$`` behind, which say what holds anyway."""
    text = text.removeprefix("^")
    before = text.removesuffix("$")
    backslashes = len(before) - len(before.rstrip("\\"))
    return text if backslashes % 2 else before


class _Compiler:
    """Reads a pattern and lays out its states; the last one is the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._depth = 0
        fragment = self._alternatives()
        if self._at < len(text):
            raise PatternError(f"')' at {self._at} closes nothing")
        self.states = [*fragment, _State(None, ())]

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self) -> str:
        letter = self._peek()
        if not letter:
            raise PatternError("the pattern ends too early")
        self._at += 1
        return letter

    # Fragments are lists of states whose targets count from the fragment's first state; they end by falling through to what follows them.

    def _alternatives(self) -> list[_State]:
        branches = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            branches.append(self._sequence())
        fragment = branches.pop()
        while branches:
            first = branches.pop()
            after = len(first) + 2
            fragment = [_State(None, (1, after)), *_moved(first, 1), _State(None, (after + len(fragment),)), *_moved(fragment, after)]
        return _small(fragment)

    def _sequence(self) -> list[_State]:
        fragment: list[_State] = []
        while self._peek() not in ("", "|", ")"):
            fragment += _moved(self._repeated(), len(fragment))
            _small(fragment)
        return fragment

    def _repeated(self) -> list[_State]:
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

    def _single(self) -> list[_State]:
        match self._take():
            case "(":
                return self._group()
            case "[":
                return [_State(self._class(), ())]
            case ".":
                return [_State(lambda letter: letter != "\n", ())]
            case "^" | "$":
                raise PatternError("'^' and '$' are only taken at the beginning and at the end")
            case "\\":
                return [_State(self._escape(), ())]
            case letter if letter in _SPECIAL:
                raise PatternError(f"'{letter}' at {self._at - 1} stands where it cannot")
            case letter:
                return [_State(partial(str.__eq__, letter), ())]

    def _group(self) -> list[_State]:
        if self._peek() == "?":
            self._at += 1
            if self._take() != ":":
                raise PatternError("of groups with '?' only (?:...) is taken")
        self._depth += 1
        if self._depth > 50:
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


def _moved(fragment: list[_State], by: int) -> list[_State]:
    return [state if not state.targets else _State(state.test, tuple(each + by for each in state.targets)) for state in fragment]


def _small(fragment: list[_State]) -> list[_State]:
    if len(fragment) > STATES_MAX:
        raise PatternError(f"the pattern needs more than {STATES_MAX} states")
    return fragment


def _times(fragment: list[_State], least: int, most: int | None) -> list[_State]:
    """The fragment `least` times, and then up to `most` times altogether, or any number of times."""
    size = len(fragment)
    if size * max(least, most or 0) > STATES_MAX:
        raise PatternError(f"the pattern needs more than {STATES_MAX} states")
    result: list[_State] = []
    for _ in range(least):
        result += _moved(fragment, len(result))
    if most is None:
        at = len(result)
        result += [_State(None, (at + 1, at + size + 2)), *_moved(fragment, at + 1), _State(None, (at,))]
        return _small(result)
    end = len(result) + (most - least) * (size + 1)
    for _ in range(most - least):
        at = len(result)
        result += [_State(None, (at + 1, end)), *_moved(fragment, at + 1)]
    return _small(result)
