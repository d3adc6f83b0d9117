"""The protocol of a mirror's group: what its leader does with what the members send.

Only the leader's view of the sources counts. A leader that has not seen a source yet leaves its partitions to those that own them.
"""

import logging
from collections.abc import Collection, Iterable, Mapping

from moldau.mirror.sharing.assignor import assign, weights_of
from moldau.mirror.sharing.messages import Assignment, MemberState
from moldau.mirror.sharing.shares import Share

_LOG = logging.getLogger(__name__)

UNKNOWN = ""
"""Instance of a member whose state cannot be read."""


class MirrorSharing:
    """A :class:`moldau.wire.group.Sharing` of a mirror's members."""

    protocol_type = "mirror"
    name = "throughput"

    def __init__(self, mirror: str, sources: Collection[str]) -> None:
        self._mirror = mirror
        self._seen: dict[str, frozenset[Share] | None] = dict.fromkeys(sources)
        """By source; None: not seen yet."""
        self._assigned_from: Mapping[str, frozenset[Share] | None] | None = None
        """What it saw when it assigned, as the leader of the generation that it has joined."""
        self._rates: dict[Share, float] = {}
        """What members reported last: a partition that is on its way between two is measured by neither."""

    def see(self, source: str, shares: Iterable[Share]) -> None:
        """The partitions that are to be mirrored of a source."""
        self._seen[source] = frozenset(shares)

    @property
    def has_assigned(self) -> bool:
        """Whether it has assigned in this generation."""
        return self._assigned_from is not None

    @property
    def is_outdated(self) -> bool:
        """Whether the sources have other partitions than it has assigned in this generation, or it has not assigned any."""
        return self._assigned_from != self._seen

    def begin_join(self) -> None:
        """This process joins: it has not assigned in the next generation."""
        self._assigned_from = None

    async def assign(self, members: Mapping[str, bytes]) -> dict[str, bytes]:
        """As the leader: assignments by member id, from what members sent. One whose state cannot be read owns nothing."""
        self._assigned_from = dict(self._seen)
        states = {member: self._read(member, sent) for member, sent in members.items()}
        by_name = dict(sorted(states.items(), key=lambda each: (each[1].instance, each[0])))
        weights = weights_of(self._learn_rates(states.values()))
        parts = assign(weights, {member: state.ownership for member, state in by_name.items()})
        present = {state.instance for state in states.values()}
        instances = {name for state in states.values() for name in state.instances} | present
        is_complete = UNKNOWN not in present  # else a member might be taken for one that has departed
        departed = tuple(sorted(instances - present)) if is_complete else ()
        mean = sum(weights.values()) / len(members)
        _LOG.info(
            "assigned partitions: mirror=%s members=%d partitions=%d waiting=%d departed=%s bytes_per_s=%d",
            self._mirror,
            len(members),
            len(weights),
            len(weights) - sum(map(len, parts.values())),
            ",".join(departed),
            sum(weights.values()),
        )
        known = tuple(sorted(instances - {UNKNOWN}))
        return {
            member: Assignment(
                tuple(part),
                departed,
                known,
                sum(weights[share] for share in part),
                mean,
                must_rejoin=not set(part).issuperset(states[member].ownership.shares),
            ).encode()
            for member, part in parts.items()
        }

    def _read(self, member: str, sent: bytes) -> MemberState:
        try:
            return MemberState.decode(sent)
        except ValueError as error:
            _LOG.warning(
                "cannot read the state of a member, which is taken to own nothing: mirror=%s member=%s error=%s",
                self._mirror,
                member,
                error,
            )
            return MemberState(UNKNOWN)

    def _learn_rates(self, states: Iterable[MemberState]) -> dict[Share, float | None]:
        """What is known of each partition that is to be assigned."""
        by_age = sorted(states, key=lambda state: state.ownership.generation_id)
        partitions = {share for shares in self._seen.values() for share in shares or ()}
        unseen = [source for source, shares in self._seen.items() if shares is None]
        for state in by_age:
            self._rates.update(state.rates)
            partitions.update(share for share in state.ownership.shares if share.source in unseen)
        self._rates = {share: rate for share, rate in self._rates.items() if share in partitions}
        return {share: self._rates.get(share) for share in sorted(partitions)}
