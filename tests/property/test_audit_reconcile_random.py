"""Whatever is sent by whomever in whatever order: one planted fault is found where it was planted, and nowhere else."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from moldau.audit.verdicts import Verdict
from support.audit_events import MINUTE, NOON, Host
from support.audit_ledger import Ledger
from support.sizes import sized

HOSTS = [Host(f"host-{number}", f"dc-{number % 2}", "s", b"inst-%03d" % number) for number in range(4)]
FAULTS = {"none": None, "drop": Verdict.LOSS, "double": Verdict.DUPLICATION, "swap": Verdict.HIDDEN_LOSS, "replace": Verdict.HIDDEN_LOSS}
MANY_MINUTES = 600 * MINUTE


@settings(max_examples=sized(25, 600), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 45 * MINUTE)), min_size=2, max_size=40),
    st.sampled_from(sorted(FAULTS)),
    st.integers(0, 10_000),
    st.integers(0, 2**32),
)
def test_one_fault_is_found_where_it_is(sent: list[tuple[int, int]], fault: str, which: int, seed: int) -> None:
    """Increments come in any order and any sizes; exactly the window and host of the fault are alarmed about, by the right word."""
    chance = random.Random(seed)
    events = [(HOSTS[host], HOSTS[host].event(number, NOON + time), time // (10 * MINUTE)) for number, (host, time) in enumerate(sent)]
    host, event, window = events[which % len(events)]
    like_it = [other for at, other, where in events if (at, where) == (host, window) and other != event]
    logged = [each for _, each, _ in events]
    if fault == "double":
        logged.append(event)
    elif fault == "swap" and like_it:
        logged[logged.index(event)] = like_it[0]
    elif fault in ("swap", "replace"):
        logged[logged.index(event)] = host.event(99_999, NOON + window * 10 * MINUTE)
    elif fault == "drop":
        logged.remove(event)

    ledger = Ledger()
    ledger.now = NOON + 50 * MINUTE
    for each in HOSTS:
        ledger.opens(each)
    for tier, values in (("producer", [each for _, each, _ in events]), ("local", logged)):
        chance.shuffle(values)
        while values:
            size = chance.randint(1, len(values))
            ledger.wait(1000).counts(tier, values[:size])
            values = values[size:]
    for each in HOSTS:
        ledger.closes(each)
    report = ledger.wait(MANY_MINUTES).report()

    wrong = {(pair.window_start_ms, line.host): line.verdict for pair in report.pairs for line in pair.sources if line.verdict.alarming}
    expected = FAULTS[fault]
    assert wrong == ({} if expected is None else {(NOON + window * 10 * MINUTE, host.name): expected})
    mark = report.watermarks.get(("departures", "local"))
    before = [where for _, _, where in events if expected is None or where < window]
    assert mark == (NOON + (max(before) + 1) * 10 * MINUTE if before else None)
