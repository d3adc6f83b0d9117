"""One process's part of a mirror's work: it joins the group, and has its worker follow the assignments.

The cooperative protocol (KIP-429): the worker continues through a rebalance with what it owns. What the assignment does not have any more
is revoked, and the next join says so; then the leader gives it to another member. What is new comes after that::

    join, with what it owns --> sync: the assignment --> revoke what is not in it --> assign what is new --+
      ^                                                                                                    |
      +-- the group rebalances; something was revoked; the leader sees other partitions; loads have changed +

Heartbeats run by themselves while the worker revokes or begins, but the other members wait for this one, and for no longer than the
rebalance time-out. Then a generation begins without it, in which another member may get what it owns: the leader has what a static member
sent when it joined last, which is older than its assignment. The coordinator also expels members that it does not hear from.

Either way the worker has to drop what it owns without committing it, and before it has the metadata of a generation in which another owns
it: a process that has missed a generation keeps its older metadata until its worker has dropped everything. With that it can commit
nothing. Nor does it take the metadata of a generation before it has its assignment, which the coordinator stores first: of one that is not
stored, a coordinator that fails leaves nothing, and its successor may give the same number to a generation without this member.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Protocol

from moldau.mirror.reachability import is_logged
from moldau.mirror.sharing.assignor import IDLE_BYTES_S, IMBALANCE
from moldau.mirror.sharing.messages import Assignment, MemberState
from moldau.mirror.sharing.protocol import MirrorSharing
from moldau.mirror.sharing.shares import NOTHING, Ownership, Share
from moldau.model.errors import ErrorCode, PeerError, WorldError
from moldau.model.log_throttle import LogThrottle
from moldau.wire.brokers import Brokers, may_pass
from moldau.wire.group import LOST, GroupMetadata, Membership

_LOG = logging.getLogger(__name__)

CHECK_S = 0.1
"""How often a member that has nothing to do looks whether it has to rejoin."""
REJOIN_INTERVAL_S = 5.0
"""At least so long after it has joined the leader rejoins because the sources have other partitions."""
BALANCE_INTERVAL_S = 300.0
"""How often a member looks whether its load has changed so that partitions may have to move."""
LOGGED_EACH_S = 60.0
REASONS_LOGGED_MAX = 10


class FencedInstanceError(PeerError):
    """Another process has the same instance of the same mirror, and has taken over from this one."""

    def __init__(self, mirror: str, instance: str, other: str = "") -> None:
        """`other`: where that one runs, if it is known."""
        super().__init__(
            ErrorCode.FENCED_INSTANCE_ID,
            f"another process{f' ({other})' if other else ''} runs as instance {instance} of mirror {mirror} now, and this one ends;"
            " give each its own --instance",
        )


class Worker(Protocol):
    """What works on the partitions. Its methods are called one at a time."""

    async def assign(self, shares: Sequence[Share], departed: Sequence[str]) -> None:
        """Work on these too. Instances that departed may have left something open, which has to be fenced before."""

    async def revoke(self, shares: Sequence[Share]) -> None:
        """End the work on these: when it returns another process may begin. It returns, too, where the group has fenced this one."""

    async def lost(self) -> None:
        """Drop everything without committing: another process may have it already."""

    def rates(self) -> Mapping[Share, float]:
        """Bytes a second of the partitions that are worked on, as far as they are measured."""


class SharedWork:
    """See the module."""

    def __init__(
        self,
        brokers: Brokers,
        mirror: str,
        instance: str,
        sources: Collection[str],
        worker: Worker,
        *,
        session_timeout_s: float = 10.0,
        heartbeat_s: float = 1.0,
        rebalance_timeout_s: float = 20.0,
    ) -> None:
        """`brokers` are those of the target; `sources` the aliases of all sources of the mirror."""
        self._brokers = brokers
        self._mirror = mirror
        self._instance = instance
        self._worker = worker
        self._sharing = MirrorSharing(mirror, sources)
        self._membership = Membership(
            brokers,
            f"mirror.{mirror}",
            self._sharing,
            instance_id=instance,
            session_timeout_s=session_timeout_s,
            rebalance_timeout_s=rebalance_timeout_s,
            heartbeat_s=heartbeat_s,
        )
        self._ownership = NOTHING
        self._metadata = self._membership.metadata
        """Of the generation whose assignment it has."""
        self._generation_id = -1
        """Of the last generation for which the leader had what this process owns."""
        self._assignment = Assignment()
        self._instances: tuple[str, ...] = ()
        """Members that it knows of, without those whose departure it has handled."""
        self._joined_at = 0.0
        self._balanced_at = 0.0
        """When it last looked at its load, or joined."""
        self._failures = 0
        """To join, in turn."""
        self.failure = ""
        """Why it is not a member of the group, or may not be any more; it tries again."""
        self._throttle = LogThrottle(LOGGED_EACH_S, REASONS_LOGGED_MAX)

    @property
    def metadata(self) -> GroupMetadata:
        """Who this is in the group, by which the coordinator fences its commits. To be read for each: it changes with each generation.

        From the moment a generation begins until this member has its assignment, its commits are refused with ILLEGAL_GENERATION.
        """
        return self._metadata

    @property
    def owned(self) -> tuple[Share, ...]:
        """What its worker has, in order; what is being revoked included."""
        return self._ownership.shares

    @property
    def is_first(self) -> bool:
        """Whether it is the first of the members, by their names, of the generation whose assignment it has."""
        members = set(self._assignment.instances).difference(self._assignment.departed)
        return not self._membership.is_lost and min(members, default=None) == self._instance

    def doubted(self) -> None:
        """The coordinator has refused what was done as this member: join again."""
        self._membership.needs_rejoin = True

    def see(self, source: str, shares: Iterable[Share]) -> None:
        """The partitions that are to be mirrored of a source. Before the first time they stay with the members that own them."""
        self._sharing.see(source, shares)

    async def run(self) -> None:
        """Share the work until that fails. Errors as of `step`."""
        while True:
            await self.step()

    async def step(self) -> None:
        """Join if that is due, and have the worker follow; else wait a moment. Errors that pass are logged, and it is tried again.

        FencedInstanceError; PeerError for others that do not pass, such as GROUP_AUTHORIZATION_FAILED.
        """
        membership = self._membership
        if membership.is_lost:
            await self._lose()
        if membership.is_fenced:
            membership.stop()
            raise FencedInstanceError(self._mirror, self._instance)
        if membership.needs_rejoin or self._is_better_rejoined():
            await self._join()
        else:
            if membership.heartbeat_error is not None:
                self._log_failure("heartbeat failed", membership.heartbeat_error)
            else:
                self.failure = ""
            await asyncio.sleep(CHECK_S)

    async def close(self) -> None:
        """Revoke everything. The group notices after the session time-out, unless the instance comes back before."""
        if self._membership.is_lost:
            await self._lose()
        elif self._ownership.shares:
            await self._worker.revoke(self._ownership.shares)
            self._ownership = NOTHING
        self._membership.stop()

    # Joining

    async def _join(self) -> None:
        membership = self._membership
        state = MemberState(self._instance, self._ownership, self._worker.rates(), self._instances)
        self._sharing.begin_join()
        try:
            answered = await membership.rejoin(state.encode())
        except (PeerError, WorldError) as error:
            if not (may_pass(error) or (isinstance(error, PeerError) and error.code in LOST)):
                raise
            if _is_rebalance(error):
                await self._take_part()
            await self._back_off(error)
            return
        self._failures = 0
        self._joined_at = self._balanced_at = asyncio.get_running_loop().time()
        if await self._take_part():
            self._metadata = membership.metadata
            await self._follow(self._read(answered))

    async def _take_part(self) -> bool:
        """It has joined a generation. Whether it has not missed one before, else it has dropped everything and has to join again."""
        missed = bool(self._ownership.shares) and self._membership.metadata.generation_id > self._generation_id + 1
        if missed:
            await self._lose()
            self._membership.needs_rejoin = True
        self._generation_id = self._membership.metadata.generation_id
        return not missed

    async def _back_off(self, error: PeerError | WorldError) -> None:
        """Wait before it joins again. That another rebalance has begun meanwhile is no failure."""
        if self._membership.is_fenced:
            return
        if _is_rebalance(error):
            self._failures = 0
        else:
            self._failures += 1
            self._log_failure("cannot join the group", error)
        await self._brokers.back_off(max(self._failures, 1))

    def _read(self, answered: bytes) -> Assignment:
        try:
            return Assignment.decode(answered)
        except ValueError as error:
            _LOG.error(
                "cannot read the assignment, so nothing is mirrored here: mirror=%s instance=%s error=%s",
                self._mirror,
                self._instance,
                error,
            )
            return Assignment()

    async def _follow(self, assignment: Assignment) -> None:
        """Revoke what is not in the assignment, then begin what is new. At each await `_ownership` is what the worker has."""
        generation_id = self.metadata.generation_id
        assigned, owned = set(assignment.shares), set(self._ownership.shares)
        removed = tuple(share for share in self._ownership.shares if share not in assigned)
        added = tuple(share for share in assignment.shares if share not in owned)
        kept = tuple(share for share in assignment.shares if share in owned)
        _LOG.info(
            "joined the group: mirror=%s instance=%s generation=%d partitions=%d added=%d removed=%d departed=%s",
            self._mirror,
            self._instance,
            generation_id,
            len(assigned),
            len(added),
            len(removed),
            ",".join(assignment.departed),
        )
        self._assignment = assignment
        self._instances = assignment.instances
        self._ownership = Ownership(self._ownership.shares, generation_id)
        if removed:
            await self._worker.revoke(removed)
            self._ownership = Ownership(kept, generation_id)
        if removed or assignment.must_rejoin:
            self._membership.needs_rejoin = True  # then the leader gives away what was revoked
        if self._membership.is_lost:
            return
        if added or assignment.departed:
            self._ownership = Ownership(assignment.shares, generation_id)
            await self._worker.assign(added, assignment.departed)
        self._instances = tuple(name for name in assignment.instances if name not in assignment.departed)

    async def _lose(self) -> None:
        """Another may own what this process owns: drop everything, once."""
        if self._ownership == NOTHING:
            return
        _LOG.warning(
            "%s: mirror=%s instance=%s generation=%d partitions=%d",
            "another process has taken over this instance; this one drops its partitions and ends"
            if self._membership.is_fenced
            else "the group has continued without this instance, which drops its partitions and joins again",
            self._mirror,
            self._instance,
            self._ownership.generation_id,
            len(self._ownership.shares),
        )
        await self._worker.lost()
        self._ownership, self._assignment = NOTHING, Assignment()

    # When it rejoins by itself

    def _is_better_rejoined(self) -> bool:
        if self._membership.is_leader and not self._sharing.has_assigned:
            return True  # a static leader that came back: its predecessor may have assigned other partitions (KIP-814)
        now = asyncio.get_running_loop().time()
        if now - self._joined_at < REJOIN_INTERVAL_S:
            return False
        if self._membership.is_leader and self._sharing.is_outdated:
            return True
        if now - self._balanced_at < BALANCE_INTERVAL_S:
            return False
        self._balanced_at = now
        return self._has_drifted()

    def _has_drifted(self) -> bool:
        """Whether the load is so far from what the leader assumed that by the measured one it may assign otherwise.

        Each member compares for itself: no message is needed while loads are as they were, and an imbalance that the leader could not help
        does not begin rebalances again and again.
        """
        rates = self._worker.rates()
        load = sum(max(rates.get(share, 0.0), IDLE_BYTES_S) for share in self._ownership.shares)
        return abs(load - self._assignment.load) > IMBALANCE * self._assignment.mean

    def _log_failure(self, what: str, error: PeerError | WorldError) -> None:
        """Often the same for minutes."""
        self.failure = f"{what}: {error}"
        reason = error.code if isinstance(error, PeerError) else type(error)
        if not is_logged(error) and self._throttle.due((what, reason), asyncio.get_running_loop().time()):
            _LOG.warning("%s: mirror=%s instance=%s error=%s; retrying", what, self._mirror, self._instance, error)


def _is_rebalance(error: PeerError | WorldError) -> bool:
    return isinstance(error, PeerError) and error.code is ErrorCode.REBALANCE_IN_PROGRESS
