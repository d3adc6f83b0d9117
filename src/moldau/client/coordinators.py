"""Which broker looks after which group or transactional id, as far as is known, and requests to it.

Another try is made where the coordinator moved or still loads.
"""

from collections.abc import Callable
from typing import Any, TypeVar

from moldau.client.brokers import Brokers
from moldau.client.errors import UnreachableError, failure
from moldau.client.retry import may_pass
from moldau.model.errors import ErrorCode, PeerError, ProtocolError, WorldError
from moldau.model.identity import BrokerId
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.versions import VersionRange

T = TypeVar("T")

GROUP, TRANSACTION = 0, 1
"""The kinds of keys that FindCoordinator looks up."""
_NAMES = {GROUP: "group", TRANSACTION: "transactional id"}

_BATCHED = VersionRange(4, 6)
"""Versions of FindCoordinator that take many keys."""


class Coordinators:
    """Asks the coordinators of groups, or of transactional ids (`kind`), in the cluster of `brokers`."""

    def __init__(self, brokers: Brokers, kind: int = GROUP) -> None:
        self._brokers = brokers
        self._kind = kind
        self._known: dict[str, BrokerId] = {}

    def ask(
        self,
        group: str,
        api_key: ApiKey,
        message: Any,
        read: Callable[[Any], T],
        *,
        version: VersionRange | None = None,
        repeatable: bool = True,
    ) -> T:
        """Ask the coordinator of `group`; `read` raises RequestFailedError for an answer with an error.

        A request that is not `repeatable` is not sent again when the connection was lost under way: it may have been carried out.
        """
        retry = self._brokers.retry()
        while True:
            try:
                return read(self._brokers.at_broker(self.find(group), api_key, message, version=version))
            except WorldError as error:
                if not repeatable and not isinstance(error, UnreachableError):
                    raise
                self._known.pop(group, None)
                retry.pause(error)
            except PeerError as error:
                if not may_pass(error):
                    raise
                self._known.pop(group, None)
                retry.pause(error)

    def find(self, group: str) -> BrokerId:
        """The coordinator of a group, asked for once. RequestFailedError: COORDINATOR_NOT_AVAILABLE while there is none."""
        if group not in self._known:
            from moldau.protocol.messages.find_coordinator import FindCoordinatorRequest

            request = FindCoordinatorRequest(key_type=self._kind, coordinator_keys=[group])
            response = self._brokers.anywhere(ApiKey.FIND_COORDINATOR, request, version=_BATCHED)
            found = [each for each in response.coordinators if each.key == group]
            if len(found) != 1:
                raise ProtocolError(f"{_NAMES[self._kind]} {group}: {len(found)} coordinators where one was asked for")
            if found[0].error_code:
                raise failure(found[0].error_code, f"{_NAMES[self._kind]} {group}", found[0].error_message)
            self._known[group] = BrokerId(found[0].node_id)
        return self._known[group]


def not_found(error: PeerError) -> bool:
    """Whether the answer means that there is no such group."""
    return error.code is ErrorCode.GROUP_ID_NOT_FOUND
