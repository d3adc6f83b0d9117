"""Which topics of a source are mirrored: the patterns of the file, and what an operator has changed since.

* A topic that ``exclude`` of the file matches is not mirrored, whatever is added.
* Of the changes that match a topic the latest decides. Without one, ``include`` does.
* Internal topics, whose names begin with an underscore, are included and added only by their exact names: ``.*`` and ``_.*`` mean none
  of them.
* The state of a cluster's coordinators and mirrors is never mirrored: in another cluster it would be read as that one's own.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from moldau.mirror.patterns import NamePatterns, Pattern, is_matched
from moldau.model.topic_names import is_internal

NEVER: Final = frozenset(
    {"__consumer_offsets", "__transaction_state", "_mirror_offsets", "_mirror_positions", "_mirror_producers", "_mirror_state"}
)
"""Topics with the state of one cluster."""


class Action(Enum):
    """What a change does to the topics that its pattern matches."""

    ADD = "add"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Change:
    """A change at run time."""

    action: Action
    pattern: Pattern

    def matches(self, topic: str) -> bool:
        """Whether it decides over the topic."""
        if self.action is Action.ADD:
            return _brings(self.pattern, topic)
        return self.pattern.fullmatch(topic) is not None


def _brings(pattern: Pattern, topic: str) -> bool:
    return pattern.pattern == topic if is_internal(topic) else pattern.fullmatch(topic) is not None


def _covers(change: Change, earlier: Change) -> bool:
    """A removal also matches the internal topics that an addition of its pattern does not match."""
    return change.pattern == earlier.pattern and change.action in (earlier.action, Action.REMOVE)


@dataclass(frozen=True, slots=True)
class Difference:
    """Topics that come, and topics that go, in the order of their names."""

    come: tuple[str, ...]
    go: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The topics that are mirrored now."""

    patterns: NamePatterns
    """Of the file."""
    changes: tuple[Change, ...] = ()
    """Invariant: the oldest first, and none that later ones leave nothing to decide."""

    def selects(self, topic: str) -> bool:
        """Whether the topic is mirrored."""
        if topic in NEVER or is_matched(topic, self.patterns.exclude):
            return False
        for change in reversed(self.changes):
            if change.matches(topic):
                return change.action is Action.ADD
        return any(_brings(pattern, topic) for pattern in self.patterns.include)

    def reason(self, topic: str) -> str:
        """Why a topic is not mirrored."""
        if topic in NEVER:
            return "its records are the state of one cluster"
        if is_matched(topic, self.patterns.exclude):
            return "the file excludes it"
        removed = any(change.matches(topic) for change in self.changes)
        return "it was removed by moldau mirror topics remove" if removed else "no pattern of the file includes it, and none was added"

    def of(self, topics: Iterable[str]) -> tuple[str, ...]:
        """Those of the topics that are mirrored, in the order of their names."""
        return tuple(sorted(topic for topic in {*topics} if self.selects(topic)))

    def with_change(self, change: Change) -> "TopicSelection":
        """With this change as the latest. Earlier ones of the same pattern, which it covers, are dropped."""
        kept = tuple(each for each in self.changes if not _covers(change, each))
        return TopicSelection(self.patterns, (*kept, change))

    def difference(self, after: "TopicSelection", topics: Iterable[str]) -> Difference:
        """What comes and goes of the topics when this selection is replaced by `after`."""
        names = {*topics}
        mine, theirs = set(self.of(names)), set(after.of(names))
        return Difference(tuple(sorted(theirs - mine)), tuple(sorted(mine - theirs)))
