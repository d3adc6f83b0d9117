"""What a topic of a source is called in the target, and back.

* ``topic``: as in the source. Topics of the same name of several sources become one.
* ``source.topic``: the source's name and a dot before it, so that each source has topics of its own. A source's name has no dot: the first
  one ends it, whatever the topic is called.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from moldau.model.topic_names import NAME_RULE, is_allowed

SEPARATOR: Final = "."


class Naming(Enum):
    """How topics are called in the target. The values are those of the file."""

    TOPIC = "topic"
    SOURCE_TOPIC = "source.topic"


class SourceTopic(NamedTuple):
    """A topic of one of a mirror's sources."""

    source: str
    topic: str


class TargetNameError(ValueError):
    """The name that a topic would get in the target is too long."""


@dataclass(frozen=True, slots=True)
class TopicNames:
    """The names of a mirror's topics. Names of sources have no dot."""

    naming: Naming
    sources: tuple[str, ...]

    def target(self, origin: SourceTopic) -> str:
        """The topic of the target. TargetNameError if its name would be too long."""
        if self.naming is Naming.TOPIC:
            return origin.topic
        name = f"{origin.source}{SEPARATOR}{origin.topic}"
        if not is_allowed(name):
            raise TargetNameError(
                f"topic {origin.topic} of source {origin.source} cannot be mirrored: "
                f"its name in the target has {len(name)} characters, {name}; {NAME_RULE}"
            )
        return name

    def origins(self, target: str) -> tuple[SourceTopic, ...]:
        """The topics that go into a topic of the target, if their sources have them; none if it is no name that this mirror gives."""
        if self.naming is Naming.TOPIC:
            return tuple(SourceTopic(source, target) for source in self.sources)
        source, _, topic = target.partition(SEPARATOR)
        return (SourceTopic(source, topic),) if source in self.sources and is_allowed(topic) else ()
