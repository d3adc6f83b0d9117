"""What can go wrong between us and a broker; every message names the broker's address."""

from moldau.client.address import Address
from moldau.model.errors import ErrorCode, PeerError, WorldError, known_error
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
    """Another thread ended what was under way here: nothing more is asked."""

    def __init__(self, address: Address) -> None:
        super().__init__(f"{address}: not asked, the client was interrupted", retriable=False)
        self.address = address


class RequestFailedError(PeerError):
    """The broker answered with an error; `subject` is what it is about: a topic, a partition, a broker."""

    def __init__(self, code: ErrorCode, message: str, subject: "str | TopicPartition | None" = None) -> None:
        super().__init__(code, message)
        self.subject = subject


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
