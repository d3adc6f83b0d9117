"""What a peer is told when the store of metadata fails."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from moldau.model.errors import CoordinationError, ErrorCode, PeerError

_LOG = logging.getLogger(__name__)


@contextmanager
def reported(change: str) -> Iterator[None]:
    """Log a failure of the store during `change`, and raise it as the PeerError that it is to the peer: KAFKA_STORAGE_ERROR."""
    try:
        yield
    except CoordinationError as error:
        _LOG.error("metadata not changed: change=%s reason=%s", change, error)
        raise PeerError(ErrorCode.KAFKA_STORAGE_ERROR, f"the store of metadata failed: {error}") from error
