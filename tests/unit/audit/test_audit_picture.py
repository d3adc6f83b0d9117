"""The picture of a tree of tiers has counts, verdicts and the lag of each edge, and is well-formed whatever names there are."""

import xml.etree.ElementTree as ET
from dataclasses import replace

from moldau.audit.edges import edges_of
from moldau.audit.picture import span_text, tree_picture
from moldau.audit.tree import Tier, TierTree
from moldau.audit.verdicts import Report, SourceLine, Verdict, WindowPair
from moldau.tracking.counts import Count
from moldau.tracking.latencies import NO_LATENCIES, Latencies, added, bucket_of

TREE = TierTree.of([Tier("ewr", ("producer",)), Tier("jfk", ("producer",)), Tier("all", ("ewr", "jfk")), Tier("lake", ("all",))])


def count(events: int) -> Count:
    return Count(events, 10 * events, 7 * events, 1, 2)


def line(above: int, below: int, verdict: Verdict, *uppers: str) -> SourceLine:
    return SourceLine("ewr", "s", "h", "i", count(above), count(below), verdict, True, upper_tiers=uppers)


def pair(upper: str, lower: str, *lines: SourceLine) -> WindowPair:
    above, below = sum(each.upper.count for each in lines), sum(each.lower.count for each in lines)
    verdict = min((each.verdict for each in lines), key=list(Verdict).index)
    return WindowPair("a<b", 0, upper, lower, count(above), count(below), verdict, True, lines)


REPORT = Report(
    TREE.names,
    (
        pair("producer", "ewr", line(1200, 1200, Verdict.COMPLETE, "producer")),
        pair("producer", "jfk", line(800, 800, Verdict.COMPLETE, "producer")),
        pair("ewr + jfk", "all", line(1200, 1200, Verdict.COMPLETE, "ewr"), line(800, 797, Verdict.LOSS, "jfk")),
    ),
    {},
)
LATENCIES = {
    ("a<b", "all", 0): Latencies.of({bucket_of(512): 190, bucket_of(4096): 3}),
    ("a<b", "all", 600_000): Latencies.of({bucket_of(4096): 4}),
}


def test_each_edge_has_its_own_part_of_a_sum() -> None:
    edges = {(each.upper, each.lower): (each.above, each.below, each.lag, each.verdict) for each in edges_of(REPORT, TREE)}
    assert edges == {
        ("producer", "ewr"): (1200, 1200, 0, Verdict.COMPLETE),
        ("producer", "jfk"): (800, 800, 0, Verdict.COMPLETE),
        ("ewr", "all"): (1200, 1200, 0, Verdict.COMPLETE),
        ("jfk", "all"): (800, 797, 3, Verdict.LOSS),
        ("all", "lake"): (0, 0, 0, None),
    }


def test_an_edge_has_the_latencies_of_its_lower_end() -> None:
    """From `track`, of all topics and windows; those of a sum are of all its sources together."""
    found = {(each.upper, each.lower): each.latencies for each in edges_of(replace(REPORT, latencies=LATENCIES), TREE)}
    assert found["producer", "ewr"] == found["producer", "jfk"] == found["all", "lake"] == NO_LATENCIES
    assert found["ewr", "all"] == found["jfk", "all"] == added(LATENCIES.values())


def test_the_picture_shows_counts_verdicts_latencies_and_the_lag_of_each_edge() -> None:
    root = ET.fromstring(tree_picture(replace(REPORT, latencies=LATENCIES), TREE))
    groups = {each.attrib["aria-label"]: [text.text for text in each.findall("{*}text")] for each in root.findall("{*}g")}
    assert groups["producer"][:2] == ["producer", "2,000 events"]
    assert groups["all"][:4] == ["all", "1,997 events", "loss", "p50 0.578 s, p95 0.637 s, p99 4.83 s"]
    assert groups["lake"][:3] == ["lake", "no counts", "not compared"]
    assert (groups["ewr > all"], groups["jfk > all"], groups["all > lake"]) == (["lag 0"], ["lag 3"], ["not compared"])
    assert "topic a<b: loss" in [each.text for each in root.findall("{*}text")]


def test_names_are_escaped() -> None:
    tree = TierTree((Tier('p<&"'), Tier("q>'", ('p<&"',))))
    root = ET.fromstring(tree_picture(Report(tree.names, (), {}), tree))
    assert 'p<&"' in {each.attrib["aria-label"] for each in root.findall("{*}g")}


def test_spans_are_in_units_that_people_read() -> None:
    assert [span_text(each) for each in (0, 12_340, 119_999, 120_000, 7_200_000, 172_800_000, 440_447_237_000)] == [
        "0 s", "12.3 s", "120 s", "2 min", "2 h", "2 d", "5,097 d"
    ]  # fmt: skip
