"""A chain is a tree: it is compared as neighbours were, one pair after the other, before there were trees."""

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.audit.reconcile import reconcile
from moldau.audit.rules import Rules
from moldau.audit.tree import TierTree
from support.audit_events import MINUTE, NOON, Host
from support.audit_ledger import Ledger
from support.chain_reconcile import compared_pairwise, pairwise_watermarks
from support.sizes import sized

HOSTS = [Host(f"host-{number}", f"dc-{number % 2}", "s", b"inst-%03d" % number) for number in range(3)]
TIERS = ("producer", "local", "offline", "lake")

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["counts", "counts", "counts", "marks", "opens", "closes"]),
        st.sampled_from(TIERS),
        st.integers(0, 2),  # whose
        st.integers(0, 20 * MINUTE),  # when the events are of
        st.integers(0, 3),  # which of the host's events comes first
        st.integers(1, 3),  # and how many
        st.sampled_from(["departures", "arrivals"]),
        st.sampled_from([1_000, MINUTE, 10 * MINUTE, 60 * MINUTE]),  # until the next step
    ),
    min_size=1,
    max_size=25,
)


@settings(max_examples=sized(150, 4000), deadline=None)
@given(STEPS, st.sampled_from([TIERS, TIERS[:2], TIERS[1:], ("producer", "lake")]), st.booleans())
def test_a_chain_is_compared_as_neighbours_are(
    steps: list[tuple[str, str, int, int, int, int, str, int]], tiers: tuple[str, ...], named: bool
) -> None:
    """Claim: whatever is counted, in whatever order, at any time: the same lines, sums and watermarks as of one pair after the other."""
    ledger = Ledger()
    for what, tier, which, time_ms, first, count, topic, then_ms in steps:
        host, ledger.topic = HOSTS[which], topic
        match what:
            case "counts":
                ledger.counts(tier, [host.event(first + each, NOON + time_ms) for each in range(count)])
            case "marks" if tier != "producer":
                ledger.marks(tier)
            case "opens":
                ledger.opens(host)
            case "closes":
                ledger.closes(host)
        ledger.wait(then_ms)
    chosen = tiers if named else ledger.found.tiers
    rules = Rules(now_ms=ledger.now, tree=TierTree.chain(chosen))
    report = reconcile(ledger.found, rules if named else Rules(now_ms=ledger.now))
    lines = compared_pairwise(ledger.found, chosen, rules)
    assert lines == sorted(
        (
            (
                (pair.topic, pair.window_start_ms, line.datacenter, line.service, line.host, line.instance),
                *(pair.upper_tier, pair.lower_tier, line.upper, line.lower, line.verdict, line.note, line.settled, line.skewed),
            )
            for pair in report.pairs
            for line in pair.sources
        ),
        key=lambda line: (line[0], line[2]),
    )
    assert all(line.upper_tiers == (pair.upper_tier,) and not pair.undecided for pair in report.pairs for line in pair.sources)
    assert report.watermarks == pairwise_watermarks(lines, chosen, ledger.now)
