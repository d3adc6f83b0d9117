"""Carries out changes: here if this registry writes, else at the one that does; one at a time, each decided on everything written before.

    until it is done or the time is over:
        no writer           ->  wait for the election
        another one writes  ->  have it confirm that it does (`peers`), and forward the request; if it is down, or writes no longer:
                                again. Not a deletion that it may have carried out: repeated, it would find nothing to delete
        this one writes     ->  read to the end of the log, decide, write, wait until it is read back, answer

This one writes if it is elected, if it forwards to no other, or if for some seconds no elected one was confirmed: the election only avoids
conflicts, the fence prevents two writers.

A client that got its answer sees its change in the next look-up, at this registry and at the writer.
"""

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from moldau.model.errors import ErrorCode, MoldauError, PeerError
from moldau.registry.decisions import ChangeDecision
from moldau.registry.errors import (
    RestError,
    forwarding_failed,
    registry_full,
    registry_incomplete,
    schema_too_large,
    store_failed,
    timed_out,
    unknown_leader,
)
from moldau.registry.peers import ForwardedAnswer, ForwardError, confirmation, forward
from moldau.registry.request import NO_CONTENT, OK, encode_json
from moldau.registry.schemas_topic import TopicReadError, WriterFencedError

if TYPE_CHECKING:
    from moldau.registry.election import Election, RegistryIdentity
    from moldau.registry.peers import WriterConfirmation
    from moldau.registry.records import SchemaVersion
    from moldau.registry.request import RestRequest
    from moldau.registry.schemas_topic import Follower, SchemasTopicWriter
    from moldau.registry.state import RegistryState

log = logging.getLogger(__name__)

TIMEOUT_S = 15.0
DOUBTED_S = 3.0
"""How long an elected writer may fail to confirm itself before this registry writes instead."""
FORWARDED_TIMEOUT_S = 5.0
"""A forwarded request waits less for the election: the registry that forwarded it retries."""
_FORWARD_TIMEOUT_S = FORWARDED_TIMEOUT_S + 1
"""How long the writer may take: a writer that is suspended does not answer, and by then another is elected."""
_PAUSE_S = 0.1
_SAY_EVERY_S = 30.0
FULL_TOLD_EVERY_S = 60.0
_UNKNOWN_LEADER = 50004
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

Decide = Callable[["RegistryState", "RestRequest"], "ChangeDecision"]


class Changes:
    """The one way to change the registry. Any thread may use it."""

    def __init__(
        self,
        state: "RegistryState",
        follower: "Follower",
        writer: "SchemasTopicWriter",
        election: "Election",
        confirming: "WriterConfirmation",
        *,
        alone: bool = False,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        """`alone`: forward to no other."""
        self.group = election.group
        self._state = state
        self._follower = follower
        self._writer = writer
        self._election = election
        self._confirming = confirming
        self._alone = alone
        self._full_told_at = -FULL_TOLD_EVERY_S
        self._said_at = -_SAY_EVERY_S
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._stopping = False

    @property
    def decides(self) -> bool:
        """Whether changes are decided here, as far as is known."""
        return self._alone or self._election.mine or self._confirming.doubted_s > DOUBTED_S

    def confirm(self, request: "RestRequest") -> tuple[int, bytes]:
        """Answer a nonce with a record, as the elected writer. RestError 422, 50004 if it is not this one."""
        return self.carry_out(lambda _state, asked: ChangeDecision({}, [confirmation(self._election.me.url, asked)]), request)

    def stop(self) -> None:
        """Begin nothing more, and stop waiting for an election."""
        self._stopping = True

    def carry_out(self, decide: Decide, request: "RestRequest") -> tuple[int, bytes]:
        """Status and body of the answer. RestError."""
        deadline = time.monotonic() + min(self._timeout_s, FORWARDED_TIMEOUT_S if request.forwarded else self._timeout_s)
        trouble = unknown_leader()
        while True:
            left_s = deadline - time.monotonic()
            if left_s <= 0 or self._stopping:
                raise trouble
            writer = self._election.writer
            here = self.decides
            if self._election.mine:
                self._confirming.believe()
            elif here and not self._alone and not request.forwarded and writer is not None and self._confirming.is_due:
                here = not self._confirming.ask(writer, left_s)
            if not here and (writer is None or request.forwarded):
                if not request.forwarded:
                    self._confirming.doubt()
                self._election.wait_for_change(min(left_s, _PAUSE_S))
                continue
            try:
                if here:
                    answer = self._here(decide, request, left_s)
                    return NO_CONTENT if answer is None else OK, encode_json(answer)
                assert writer is not None
                if not self._confirming.ask(writer, left_s):
                    trouble = self._unconfirmed(writer)
                    self._election.wait_for_change(min(left_s, _PAUSE_S))
                    continue
                theirs = forward(writer, request, min(left_s, _FORWARD_TIMEOUT_S))
                if not _writes_no_longer(theirs):
                    self._follower.catch_up(left_s)
                    return theirs.status, theirs.content
                trouble = unknown_leader()
            except WriterFencedError as error:
                trouble = store_failed(str(error))
            except ForwardError as error:
                trouble = forwarding_failed(f"Error while forwarding the request to the leader: {error}")
                if error.delivered and request.method == "DELETE":
                    raise trouble from error
            except TopicReadError as error:
                raise timed_out(str(error)) from error
            except PeerError as error:
                raise (schema_too_large() if error.code in _TOO_LARGE else store_failed(str(error))) from error
            except RestError:
                raise
            except MoldauError as error:
                raise store_failed(str(error)) from error
            self._election.wait_for_change(_PAUSE_S)

    def _here(self, decide: Decide, request: "RestRequest", timeout_s: float) -> Any:
        """Decide, write, and read it back. WriterFencedError: nothing was written, or not what was decided; another writes now."""
        deadline = time.monotonic() + timeout_s
        if not self._lock.acquire(timeout=timeout_s):
            raise timed_out(f"after {timeout_s:.0f} s changes that came earlier are still being written")
        try:
            self._follower.catch_up(deadline - time.monotonic())
            if not self._writer.ready:
                self._follower.wait_for(self._writer.take_over(), deadline - time.monotonic())
            decision = decide(self._state, request)
            if decision.writes:
                if not self.decides:
                    raise WriterFencedError("another registry was elected meanwhile")
                self._check_room(decision)
                self._follower.wait_for(self._writer.append_all(decision.writes), deadline - time.monotonic())
                if decision.registered is not None:
                    self._check(decision.registered)
            return decision.answer
        finally:
            self._lock.release()

    def _check_room(self, decision: "ChangeDecision") -> None:
        """RestError 42209 for what does not fit into the memory that all of the registry may take, and for a new id or version while not
        all of them are known.
        """
        growth, most = self._state.growth(decision.writes), self._state.memory_bytes_max
        if self._state.left_out and (growth > 0 or decision.registered is not None):
            raise registry_incomplete(most)
        if growth <= 0 or self._state.held_bytes + growth <= most:
            return
        if time.monotonic() - self._full_told_at >= FULL_TOLD_EVERY_S:
            self._full_told_at = time.monotonic()
            log.warning("bound reached, refusing more: setting=registry.memory.max.bytes value=%d", most)
        raise registry_full(most)

    def _unconfirmed(self, writer: "RegistryIdentity") -> RestError:
        if time.monotonic() - self._said_at >= _SAY_EVERY_S:
            self._said_at = time.monotonic()
            log.error(
                "elected registry not confirmed, nothing is forwarded to it, this one writes after limit_s: group=%s url=%s limit_s=%g",
                self.group, writer.url, DOUBTED_S,
            )  # fmt: skip
        return forwarding_failed(f"Error while forwarding the request to the leader: {writer.url} does not confirm that it writes")

    def _check(self, wanted: "SchemaVersion") -> None:
        """WriterFencedError unless the log agrees: a registry that is not fenced by ours may have taken the id or the version meanwhile."""
        found = self._state.version(wanted.subject, wanted.version)
        if found is None or (found.id, found.fingerprint) != (wanted.id, wanted.fingerprint):
            self._writer.resign()
            raise WriterFencedError(
                f"subject {wanted.subject} version {wanted.version}: another registry has taken it, or its id {wanted.id}"
            )


def _writes_no_longer(answer: ForwardedAnswer) -> bool:
    return answer.status == 500 and str(_UNKNOWN_LEADER).encode() in answer.content
