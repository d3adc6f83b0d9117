"""Who watches for months and forgets what is settled sees the same as who reads everything: whatever comes, whenever, and however late."""

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.audit.forgetting import forget
from moldau.audit.reconcile import reconcile
from moldau.audit.rules import Rules
from moldau.audit.tiers import TierCounts
from moldau.audit.tree import Tier, TierTree
from moldau.audit.verdicts import Report, overall, summaries
from support.audit_events import MINUTE, NOON, Host
from support.audit_ledger import Ledger
from support.sizes import sized

HOSTS = [Host(f"host-{number}", "dc", "s", b"inst-%03d" % number) for number in range(3)]
TIERS = ("producer", "local", "lake")
HOUR = 60 * MINUTE

STEPS = st.lists(
    st.tuples(
        st.integers(0, 2),  # whose events
        st.integers(0, 9 * 6),  # which ten minutes, of nine hours
        st.integers(1, 3),  # how many
        st.sampled_from(["", "", "", "", "local", "lake", "local twice", "lake twice"]),  # the tier that loses one, or doubles one
        st.integers(1, 40),  # hours until the next
    ),
    min_size=1,
    max_size=12,
)


def seen(report: Report) -> object:
    """What people look at: what is wrong and where, the sums, and the watermarks."""
    wrong = {
        (pair.window_start_ms, pair.lower_tier, line.host, line.verdict, line.upper.count - line.lower.count)
        for pair in report.pairs
        for line in pair.sources
        if line.verdict.alarming
    }
    sums = [
        (each.upper_tier, each.lower_tier, each.upper.count, each.upper.checksum, each.lower.count, each.windows)
        for each in summaries(report)
    ]
    return wrong, sums, report.watermarks, report.skewed, report.complete, report.alarming, overall(report)


@settings(max_examples=sized(50, 1200), deadline=None)
@given(STEPS, st.booleans())
def test_forgetting_changes_nothing_that_is_seen(steps: list[tuple[int, int, int, str, int]], closes: bool) -> None:
    ledger, number = Ledger(by_broker=True), 0
    forgetful = TierCounts()
    ledger.also.append(forgetful)
    for host in HOSTS:
        ledger.opens(host)
    for which, window, count, fault, hours in steps:
        host = HOSTS[which]
        values = [host.event(number + each, NOON + window * 10 * MINUTE + each) for each in range(count)]
        number += count
        for tier in TIERS:
            theirs = values[1:] if tier == fault else [*values, values[0]] if f"{tier} twice" == fault else values
            ledger.wait(1000).counts(tier, theirs).marks(tier) if tier == "local" else ledger.wait(1000).counts(tier, theirs)
        ledger.opens(host)  # a sign of life
        if closes and hours > 35:
            ledger.closes(host)
        ledger.wait(hours * HOUR)
        # a clock found to be behind later is not found to have been
        rules = Rules(now_ms=ledger.now, tree=TierTree.chain(TIERS), behind_ms=1 << 60)
        forget(forgetful, rules)
        assert seen(reconcile(forgetful, rules)) == seen(reconcile(ledger.found, rules))
    ledger.wait(26 * HOUR)
    forget(forgetful, rules := Rules(now_ms=ledger.now, tree=TierTree.chain(TIERS), behind_ms=1 << 60))
    full = reconcile(ledger.found, rules)
    assert seen(reconcile(forgetful, rules)) == seen(full)
    if full.complete:
        assert not any(forgetful.counts.values()), "all of it is settled"


TREE = TierTree.of(
    [
        Tier("a.local", ("producer",)),
        Tier("b.local", ("producer",)),
        Tier("aggregate", ("a.local", "b.local")),
        Tier("lake", ("aggregate",)),
    ]
)
HOMES = ("a.local", "b.local", "a.local")
"""Of the hosts, in their order."""


@settings(max_examples=sized(40, 1000), deadline=None)
@given(STEPS)
def test_forgetting_changes_nothing_that_is_seen_of_a_tree(steps: list[tuple[int, int, int, str, int]]) -> None:
    """Claim: each tier keeps its own share of what is settled, though every local cluster has only a part of a window's events."""
    ledger, number = Ledger(by_broker=True), 0
    forgetful = TierCounts()
    ledger.also.append(forgetful)
    for host in HOSTS:
        ledger.opens(host)
    for which, window, count, fault, hours in steps:
        host, home = HOSTS[which], HOMES[which]
        values = [host.event(number + each, NOON + window * 10 * MINUTE + each) for each in range(count)]
        number += count
        for tier in ("producer", home, "aggregate", "lake"):
            wrong = fault.replace("local", home)
            ledger.wait(1000).counts(tier, values[1:] if tier == wrong else [*values, values[0]] if f"{tier} twice" == wrong else values)
        ledger.opens(host)
        ledger.wait(hours * HOUR)
        for tier in TREE.names[1:]:
            ledger.marks(tier)
        rules = Rules(now_ms=ledger.now, tree=TREE, behind_ms=1 << 60)
        forget(forgetful, rules)
        assert seen(reconcile(forgetful, rules)) == seen(reconcile(ledger.found, rules))
