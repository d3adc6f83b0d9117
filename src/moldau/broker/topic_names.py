"""Which names a topic may have."""

from collections.abc import Iterable

from moldau.model.errors import ErrorCode, PeerError


class Collisions:
    """Names that are taken, folded so that those that differ only by '.' and '_' meet: metrics cannot tell them apart."""

    def __init__(self, taken: Iterable[str]) -> None:
        self._by_folded = {name.replace(".", "_"): name for name in taken}

    def take(self, name: str) -> None:
        """Add a name. INVALID_TOPIC_EXCEPTION if it collides with another one."""
        other = self._by_folded.setdefault(name.replace(".", "_"), name)
        if other != name:
            raise _invalid(f"the topic's name '{name}' collides with that of '{other}': '.' and '_' are not told apart in metrics")


def _invalid(message: str) -> PeerError:
    return PeerError(ErrorCode.INVALID_TOPIC_EXCEPTION, message)
