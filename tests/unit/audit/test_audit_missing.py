"""What a tier lacks is named by guid: log against table, and producer against log by the numbers of its events and the checksums."""

import pytest

from moldau.audit import missing as module
from moldau.audit.missing import Guids, TooManyGuidsError, missing, wanted_instances, wanted_places
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
    assert wanted_places(report, {"lake"}, ()) <= {("", TOPIC), ("lake", TOPIC)}
    found = missing(report, {("", TOPIC): read(report, logged), ("lake", TOPIC): read(report, loaded)}, {"lake"})
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
    (found,) = missing(report, {("", TOPIC): read(report, values[:20] + values[22:])}, ())
    assert (found.guids, found.problem[:36]) == ((), "the instance numbers events of other")


@pytest.mark.parametrize(
    ("first_left", "loaded", "names", "problem"),
    [
        (195, range(195, 200), (), "195 are no longer in the log of tier local and cannot be named"),
        (195, range(196, 200), (195,), "195 are no longer in the log of tier local and cannot be named"),
        (1, range(1, 200), (), "1 is no longer in the log of tier local and cannot be named"),
        (190, [*range(185), *range(190, 195)], (195, 196, 197, 198, 199), "5 are no longer in the log of tier local and cannot be named"),
        (100, [*range(100), *range(102, 200)], (100, 101), ""),
        (195, [*range(1, 200), 1], (), "some are no longer in the log of tier local and cannot be named"),
    ],
)
def test_events_that_the_log_no_longer_has_are_missing_by_number(
    first_left: int, loaded: list[int], names: tuple[int, ...], problem: str
) -> None:
    """Claim: what retention deleted before the load is counted as missing, and never taken for counted since."""
    values = events(EWR, 200)
    held = [values[number] for number in loaded]
    report = story(values, values, held)
    (found,) = missing(report, {("", TOPIC): read(report, values[first_left:]), ("lake", TOPIC): read(report, held)}, {"lake"})
    assert (found.guids, found.problem) == (tuple(map(guid, names)), problem)


@pytest.mark.parametrize("counted", [range(5), [*range(1, 200), 1]])
def test_what_the_table_has_since_is_not_missing(counted: list[int]) -> None:
    """Claim: a load that continued after its counts were read lacks nothing, though the log no longer has all."""
    values = events(EWR, 200)
    report = story(values, values, [values[number] for number in counted])
    (found,) = missing(report, {("", TOPIC): read(report, values[195:]), ("lake", TOPIC): read(report, values)}, {"lake"})
    assert (found.guids, found.problem) == ((), "")


def test_events_that_neither_the_log_nor_the_table_has_of_a_producer() -> None:
    """Claim: without a tier for the log it is not known whether the log ever had them."""
    values = events(EWR, 10)
    ledger = Ledger().opens(EWR).counts("producer", values).closes(EWR).wait(1000).counts("lake", values[8:])
    report = ledger.has_counted_all("lake").wait(60 * MINUTE).report(tiers=("producer", "lake"))
    (found,) = missing(report, {("", TOPIC): read(report, values[7:]), ("lake", TOPIC): read(report, values[8:])}, {"lake"})
    assert (found.guids, found.problem) == ((guid(7),), "7 are not in the log and cannot be named")


def test_a_table_that_nobody_named_cannot_be_read() -> None:
    values = events(EWR, 10)
    report = story(values, values, values[1:])
    assert wanted_places(report, (), ()) == set()
    (found,) = missing(report, {}, ())
    assert found.problem == "where is tier lake? --table lake=DIR names its tables, --tier-bootstrap lake=HOST:PORT its cluster"


@pytest.mark.parametrize(
    ("tables", "clusters", "wanted", "lacks"),
    [
        ((), ("local", "lake"), {"local", "lake"}, {"local": (7,), "lake": (11, 12)}),
        (("lake",), ("local",), {"local", "lake"}, {"local": (7,), "lake": (11, 12)}),
        ((), ("lake",), {"", "lake"}, {"local": (7,), "lake": (11, 12)}),
        ((), ("local",), {"local"}, {"local": (7,), "lake": ()}),
    ],
)
def test_each_tier_is_looked_for_in_its_own_place(
    tables: tuple[str, ...], clusters: tuple[str, ...], wanted: set[str], lacks: dict[str, tuple[int, ...]]
) -> None:
    """A tier of another cluster is compared with what its own log has; a tier without a cluster of its own is in that of the report."""
    values = events(EWR, 100)
    logged = values[:7] + values[8:]
    loaded = logged[:10] + logged[12:]
    report = story(values, logged, loaded)
    assert wanted_places(report, tables, clusters) == {(tier, TOPIC) for tier in wanted}
    held = {"": logged, "local": logged, "lake": loaded}
    found = missing(report, {(tier, TOPIC): read(report, held[tier]) for tier in wanted}, tables)
    assert {each.lower_tier: each.guids for each in found} == {tier: tuple(map(guid, numbers)) for tier, numbers in lacks.items()}


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    values = events(EWR, 10)
    report = story(values, values, values[1:])
    monkeypatch.setattr(module, "GUIDS_MAX", 9)
    with pytest.raises(TooManyGuidsError, match="--since and --topic choose fewer"):
        read(report, values)
    assert not Guids(TOPIC, frozenset()).numbers
