"""Which of a mirror's topics a command is about: all that it takes now, or those that the command names."""

from collections.abc import Iterable
from dataclasses import dataclass

from moldau.mirror.patterns import Pattern, is_matched
from moldau.mirror.selection import TopicSelection
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.near_names import did_you_mean


@dataclass(frozen=True, slots=True)
class TopicChoice:
    """See the module."""

    mirror: str
    selection: TopicSelection
    """With what operators have changed at run time."""
    patterns: tuple[Pattern, ...]
    """Without any: all topics."""
    where: str
    """Of the clusters that are asked, for messages."""

    def of(self, existing: Iterable[str]) -> list[str]:
        """Those of the existing topics, by name. PeerError for a pattern that matches none that is mirrored."""
        names = {*existing}
        mirrored = self.selection.of(names)
        for pattern in self.patterns:
            if not any(map(pattern.fullmatch, mirrored)):
                raise PeerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, self._reason(pattern, names, mirrored))
        return [name for name in mirrored if not self.patterns or is_matched(name, self.patterns)]

    def _reason(self, pattern: Pattern, names: Iterable[str], mirrored: Iterable[str]) -> str:
        other = next((name for name in sorted(names) if pattern.fullmatch(name)), None)
        if other is not None:
            return f"topic {other} in {self.where} is not one of mirror {self.mirror}: {self.selection.reason(other)}"
        hint = did_you_mean(pattern.pattern, mirrored)
        return f"no topic of mirror {self.mirror} in {self.where} matches {pattern.pattern!r}{hint}"
