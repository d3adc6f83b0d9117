"""How long to try again: until a deadline, with pauses that double; the last one ends at the deadline."""

import time
from collections.abc import Callable

from moldau.model.errors import ErrorCode, MoldauError, PeerError, WorldError

PAUSE_FIRST_S = 0.02
PAUSE_MAX_S = 1.0
UNKNOWN_TOPIC_GRACE_S = 1.0
"""A topic just created may be unknown to some brokers for a moment; one that is still unknown then does not exist."""

_UNKNOWN_TOPIC = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)


class Retry:
    """One operation that may be tried several times within `timeout_s` seconds."""

    def __init__(
        self, timeout_s: float, *, sleep: Callable[[float], object] = time.sleep, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._sleep = sleep
        self._monotonic = monotonic
        self._start = monotonic()
        self._timeout_s = timeout_s
        self._pause_s = PAUSE_FIRST_S

    def pause(self, trouble: MoldauError) -> None:
        """Wait before the next try, the last of which is made when the time is over; raises `trouble` when another try cannot help or
        there is no time for one.
        """
        if not may_pass(trouble):
            raise trouble
        elapsed_s = self._monotonic() - self._start
        if isinstance(trouble, PeerError) and trouble.code in _UNKNOWN_TOPIC and elapsed_s + self._pause_s > UNKNOWN_TOPIC_GRACE_S:
            raise trouble
        if elapsed_s >= self._timeout_s:
            raise trouble
        self._sleep(min(self._pause_s, self._timeout_s - elapsed_s))
        self._pause_s = min(2 * self._pause_s, PAUSE_MAX_S)


def may_pass(trouble: MoldauError) -> bool:
    """Whether the same thing may succeed later. A batch that is damaged stays so, though Kafka calls the code retriable."""
    match trouble:
        case PeerError():
            return trouble.code.retriable and trouble.code is not ErrorCode.CORRUPT_MESSAGE
        case WorldError():
            return trouble.retriable
        case _:
            return False
