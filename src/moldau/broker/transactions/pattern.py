"""Regular expressions that take linear time, as RE2's do in Kafka: a peer's pattern is matched on the broker's thread.

Python's own matcher goes back and tries again, so that some short patterns take longer than the age of the universe. Here a pattern
becomes a graph of states (:mod:`moldau.broker.transactions.pattern_states`), and a text moves a set of them along, letter by letter; sets
that were seen before are looked up.
"""

from moldau.broker.transactions.pattern_states import PatternError, compile_states

LENGTH_MAX = 1000
KEPT_MAX = 20_000
"""Steps from a set of states by a letter that are remembered."""

StateSet = frozenset[int]


class Pattern:
    """A pattern that a text as a whole may match."""

    def __init__(self, text: str) -> None:
        if len(text) > LENGTH_MAX:
            raise PatternError(f"a pattern of {len(text)} letters, at most {LENGTH_MAX} are taken")
        self._states = compile_states(_without_ends(text))
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
