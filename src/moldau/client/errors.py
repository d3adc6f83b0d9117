"""What can go wrong between us and a broker, and how long to try again; every message names the broker's address."""

import time
from collections.abc import Callable

from moldau.model.errors import ErrorCode, MoldauError, PeerError, WorldError, known_error
from moldau.model.host_port import Address
from moldau.model.identity import TopicPartition
from moldau.model.topic_names import NAME_RULE, is_allowed


class UnreachableError(WorldError):
    """No connection could be made."""

    def __init__(self, address: Address, reason: str) -> None:
        super().__init__(f"cannot connect to {address}: {reason}", retriable=True)
        self.address = address


class ConnectionLostError(WorldError):
    """The connection ended, or the answer did not come in time. Whether the request was carried out is not known."""

    def __init__(self, address: Address, reason: str) -> None:
        super().__init__(f"{address}: {reason}", retriable=True)
        self.address = address


class InterruptedByStopError(WorldError):
    """Another thread interrupted the client: no more requests are sent."""

    def __init__(self, address: Address) -> None:
        super().__init__(f"{address}: request not sent, the client was interrupted", retriable=False)
        self.address = address


class RequestFailedError(PeerError):
    """The broker answered with an error; `subject` is what it is about: a topic, a partition, a broker."""

    def __init__(self, code: ErrorCode, message: str, subject: "str | TopicPartition | None" = None) -> None:
        super().__init__(code, message)
        self.subject = subject


class TruncationError(RequestFailedError):
    """A leader lacks records that were read: the log was truncated to `end_offset`, before `position`, from where on reading continued.

    So it is after an election of a replica that was not in sync. What comes from `end_offset` on is not what was read there.
    """

    def __init__(self, where: TopicPartition, position: int, end_offset: int) -> None:
        super().__init__(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"partition {where}: log truncated: records from offset {end_offset} up to {position} were read and no longer exist; the leader"
            " was not in sync when it was elected (unclean.leader.election.enable)",
            where,
        )
        self.position = position
        self.end_offset = end_offset


def failure(code: int, subject: str | TopicPartition, detail: str | None = None) -> RequestFailedError:
    """The error for a code out of a response; a code that we do not know counts as UNKNOWN_SERVER_ERROR."""
    known = known_error(code)
    if known is ErrorCode.UNKNOWN_SERVER_ERROR and not detail:
        detail = f"error code {code}"
    name = subject.topic if isinstance(subject, TopicPartition) else subject.removeprefix("topic ")
    if known is ErrorCode.INVALID_TOPIC_EXCEPTION and not detail and not is_allowed(name):
        detail = f"invalid topic name: {NAME_RULE}"
    what = f"partition {subject}" if isinstance(subject, TopicPartition) else subject
    return RequestFailedError(known, f"{what}: {detail or known.name.lower().replace('_', ' ')}", subject)


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
        """Wait before the next attempt, the last of which is made when the time is over; raises `trouble` when another attempt cannot help
        or there is no time for one.
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
