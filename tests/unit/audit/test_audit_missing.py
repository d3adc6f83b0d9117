"""What a tier lacks is named by guid: log against table, and producer against log by the numbers of its events and the checksums."""

import pytest

from moldau.audit import missing as module
from moldau.audit.missing import Guids, TooManyGuidsError, missing, wanted_instances
from moldau.audit.verdicts import Report
from support.audit_events import MINUTE, Host
from support.audit_ledger import Ledger, events

EWR = Host("ewr-1", "ewr", instance=b"inst-ewr")
TOPIC = "departures"


def guid(number: int) -> str:
    return f"{EWR.instance.hex()}{number:016x}"


def story(sent: list[bytes], logged: list[bytes], loaded: list[bytes]) -> Report:
    ledger = Ledger()
    ledger.opens(EWR).counts("producer", sent).closes(EWR).wait(1000).counts("local", logged).marks("local").wait(1000)
    return ledger.counts("lake", loaded).has_counted_all("lake").wait(60 * MINUTE).report(tiers=("producer", "local", "lake"))


def read(report: Report, values: list[bytes]) -> Guids:
    found = Guids(TOPIC, wanted_instances(report).get(TOPIC, frozenset()))
    for value in values:
        found.add_value(value)
    return found


def named(sent: list[bytes], logged: list[bytes], loaded: list[bytes]) -> dict[str, tuple[str, ...]]:
    """By the lower tier: what it lacks."""
    report = story(sent, logged, loaded)
    found = missing(report, {TOPIC: read(report, logged)}, {("lake", TOPIC): read(report, loaded)})
    return {each.lower_tier: each.guids for each in found}


def test_what_the_table_lacks_of_the_log() -> None:
    values = events(EWR, 100)
    assert named(values, values, values[:7] + values[9:]) == {"lake": (guid(7), guid(8))}


@pytest.mark.parametrize("lost", [[0], [42], [99], [3, 42], [98, 99], [0, 99]])
def test_what_the_log_lacks_of_what_a_producer_sent(lost: list[int]) -> None:
    """At the beginning, in between, and at the end, where the log says nothing of it."""
    values = events(EWR, 100)
    logged = [value for number, value in enumerate(values) if number not in lost]
    assert named(values, logged, logged) == {"local": tuple(map(guid, lost))}


def test_of_an_instance_that_sends_to_other_topics_too_one_can_be_named() -> None:
    """The log lacks every second number anyway: the checksum says which of them."""
    values = events(EWR, 100)[::2]
    assert named(values, values[:20] + values[21:], values[:20] + values[21:]) == {"local": (guid(40),)}
    report = story(values, values[:20] + values[22:], values[:20] + values[22:])
    (found,) = missing(report, {TOPIC: read(report, values[:20] + values[22:])}, {})
    assert (found.guids, found.problem[:36]) == ((), "the instance numbers events of other")


def test_a_table_that_nobody_named_cannot_be_read() -> None:
    values = events(EWR, 10)
    report = story(values, values, values[1:])
    (found,) = missing(report, {TOPIC: read(report, values)}, {})
    assert found.problem == "where is tier lake? --table lake=DIR names its tables"


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    values = events(EWR, 10)
    report = story(values, values, values[1:])
    monkeypatch.setattr(module, "GUIDS_MAX", 9)
    with pytest.raises(TooManyGuidsError, match="--since and --topic choose fewer"):
        read(report, values)
    assert not Guids(TOPIC, frozenset()).numbers
