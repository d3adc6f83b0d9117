"""An audit topic as it would be after some story: who sent, who counted, who died. Pure, with a clock of its own."""

from collections.abc import Iterable
from typing import Any

from moldau.audit.events import count_each
from moldau.audit.reconcile import reconcile
from moldau.audit.rules import Rules
from moldau.audit.tiers import TierCounts
from moldau.audit.tree import TierTree
from moldau.audit.verdicts import Report, Verdict
from moldau.tracking.audit_record import AuditRecord, new_guid
from moldau.tracking.counts import NOTHING, Count, CountKey
from support.audit_events import MINUTE, NOON, Host

START = NOON + 2 * MINUTE
"""When the events of a story begin, and its clock."""
LATER = START + 600 * MINUTE


class Ledger:
    """Takes what tiers say, at the time that `now` is. With `by_broker` that is the broker's time, and hosts may believe in another."""

    def __init__(self, topic: str = "departures", *, by_broker: bool = False) -> None:
        self.found = TierCounts()
        self.also: list[TierCounts] = []
        """Take the same."""
        self.wrong_ms = 0
        """How much the clock of who speaks is ahead."""
        self.by_broker = by_broker
        self.now = START
        self.topic = topic

    def wait(self, ms: int) -> "Ledger":
        """Time passes."""
        self.now += ms
        return self

    def say(self, kind: Any, tier: str, key: CountKey, count: Count = NOTHING) -> AuditRecord:
        """One record, published now."""
        return self._take(AuditRecord(kind, new_guid(), self.now + self.wrong_ms, tier, key, count))

    def _take(self, record: AuditRecord) -> AuditRecord:
        assert AuditRecord.from_bytes(record.to_bytes()) == record
        for each in (self.found, *self.also):
            each.take(record, self.now if self.by_broker else None)
        return record

    def opens(self, host: Host) -> "Ledger":
        """A producer instance says that it is there."""
        self.say("open", "producer", _whole(host))
        return self

    def closes(self, host: Host) -> "Ledger":
        """It says that it has counted everything."""
        counts = [t.count for k, t in self.found.counts.get("producer", {}).items() if k.instance == host.instance.hex()]
        self.say("close", "producer", _whole(host), sum(counts, NOTHING))
        return self

    def counts(self, tier: str, values: Iterable[bytes]) -> "Ledger":
        """A tier publishes counts of these events."""
        for key, count in count_each(self.topic, values).counts().items():
            self.say("counts", tier, key, count)
        return self

    def marks(self, tier: str) -> "Ledger":
        """An auditor says that everything is counted."""
        self.say("open", tier, CountKey("", 0, "", "", "", tier))
        return self

    def has_counted_all(self, tier: str, owner: str = "", *, forgets: bool = False) -> "Ledger":
        """A load says that everything of the topic is counted; or that its counts are taken back."""
        counted_ms = None if forgets else self.now
        self._take(AuditRecord.of_tier(tier, self.topic, time_ms=self.now, owner=owner, counted_ms=counted_ms, forgets=forgets))
        return self

    def claims(self, tier: str, owner: str) -> "Ledger":
        """A load says that it is about to load the topic; nothing of it is counted yet."""
        self._take(AuditRecord.of_tier(tier, self.topic, time_ms=self.now, owner=owner))
        return self

    def report(self, **rules: Any) -> Report:
        """What comparing says now. `tiers` are a chain, `tree` is any."""
        if "tiers" in rules:
            rules["tree"] = TierTree.chain(rules.pop("tiers"))
        return reconcile(self.found, Rules(now_ms=self.now, **rules))

    def verdicts(self, **rules: Any) -> list[Verdict]:
        """Of each window and pair, in order."""
        return [pair.verdict for pair in self.report(**rules).pairs]

    def verdict(self, **rules: Any) -> Verdict:
        """Of the only one."""
        (found,) = self.verdicts(**rules)
        return found


def events(host: Host, count: int, *, start_ms: int = START, first: int = 0, apart_ms: int = 10) -> list[bytes]:
    """So many events of a host."""
    return [host.event(first + number, start_ms + number * apart_ms) for number in range(count)]


def _whole(host: Host) -> CountKey:
    return CountKey("", 0, host.datacenter, host.service, host.name, host.instance.hex())
