"""Whether mirrors fit together: topologies as tables, and over drawn ones the rings beside a slow search for a way back."""

from collections.abc import Iterable, Mapping
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.mirror.flows import PlannedMirror
from moldau.mirror.loops import Finding, Kind, Severity, find
from moldau.mirror.plan.file import parse_plan

ORDERS = {"A": ["orders"]}
EVERYWHERE = {cluster: ["orders", "clicks"] for cluster in "ABCD"}


def mirror(words: str, number: int = 0) -> PlannedMirror:
    """`copy A B`, `merge A+B C`, `prefix A B` (a merge with source.topic); then patterns to include, and with a minus those to exclude."""
    kind, sources, target, *patterns = words.split()
    mode = "copy" if kind == "copy" else "merge"
    name = f"m{number}"
    lines = [f'name = "{name}"', f'mode = "{mode}"']
    if kind == "prefix":
        lines.append('naming = "source.topic"')
    ids = (
        {"source": sources}
        if mode == "copy"
        else {f"{cluster.lower()}{place}": cluster for place, cluster in enumerate(sources.split("+"))}
    )
    lines += [f'{"source" if mode == "copy" else f"sources.{source}"}.bootstrap.servers = "{cluster}:1"' for source, cluster in ids.items()]
    lines.append(f'target.bootstrap.servers = "{target}:1"')
    include = [each for each in patterns if not each.startswith("-")] or [".*"]
    lines += ["[topics]", f"include = {include}", f"exclude = {[each[1:] for each in patterns if each.startswith('-')]}"]
    return PlannedMirror(f"{name}.toml", parse_plan("\n".join(lines), f"{name}.toml"), ids, target)


def mirrors(*words: str) -> list[PlannedMirror]:
    return [mirror(each, number) for number, each in enumerate(words)]


def seen(found: Iterable[Finding]) -> list[str]:
    """Kind, mirrors by their numbers, clusters, topics."""
    return [
        f"{each.kind.name} {''.join(one.plan.name[1:] for one in each.mirrors)} {''.join(each.clusters)} {','.join(each.topics)}".strip()
        for each in found
    ]


TOPOLOGIES: list[tuple[list[str], Mapping[str, list[str]], list[str]]] = [
    # trees and chains have no loops
    (["copy A B"], EVERYWHERE, []),
    (["merge A+B C"], EVERYWHERE, []),
    (["copy A B", "copy B C"], EVERYWHERE, []),
    (["merge A+B C", "copy C D"], EVERYWHERE, []),
    (["copy A B", "copy A C", "merge B+C D"], EVERYWHERE, []),
    # a copy in a ring
    (["copy A B", "copy B A"], ORDERS, ["BOTH_WAYS 01 AB orders"]),
    (["copy A B", "copy B C", "copy C A"], EVERYWHERE, ["LOOP 012 ABC clicks,orders"]),
    (["merge A B", "copy B A"], ORDERS, ["LOOP 01 AB orders"]),
    (["merge A B", "merge B C", "copy C A", "copy C D"], ORDERS, ["LOOP 012 ABC orders"]),
    # each topic has a ring of its own
    (["copy A B orders", "copy B A clicks"], {}, ["POSSIBLE_RING 01 AB"]),
    (["copy A B -clicks", "copy B A"], EVERYWHERE, ["BOTH_WAYS 01 AB orders"]),
    (["copy A B", "copy B A -orders"], ORDERS, ["POSSIBLE_RING 01 AB"]),
    (["copy A B", "copy B A"], {}, ["POSSIBLE_RING 01 AB"]),
    (["copy A B orders", "copy B A orders"], {}, ["BOTH_WAYS 01 AB orders"]),
    (["copy A B orders", "copy B A"], {}, ["BOTH_WAYS 01 AB orders"]),
    (["copy A B", "copy B A", "merge B A"], ORDERS, ["LOOP 012 AB orders", "TARGET_TWICE 12 AB orders"]),
    # merges
    (["merge A B", "merge B A"], ORDERS, ["RING 01 AB orders"]),
    (["merge A+B C", "merge A+C B", "merge B+C A"], ORDERS, ["RING 012 ABC orders"]),
    (["merge A B", "merge B A", "merge C D", "merge D C"], EVERYWHERE, ["RING 01 AB clicks,orders", "RING 23 CD clicks,orders"]),
    # names with the source before them
    (["prefix A B", "prefix B A"], ORDERS, ["GROWING_NAMES 01 AB b0.a0.orders"]),
    (["prefix A B orders", "prefix B A orders"], EVERYWHERE, ["POSSIBLE_RING 01 AB"]),
    (["prefix A B -b0[.].*", "prefix B A -a0[.].*"], EVERYWHERE, ["POSSIBLE_RING 01 AB"]),
    (["prefix A B", "copy B A"], ORDERS, ["LOOP 01 AB a0.orders"]),
    # all topics that go round are named
    (["prefix A B", "copy B A"], EVERYWHERE, ["LOOP 01 AB a0.clicks,a0.orders"]),
    (["prefix A B", "copy B A -a0[.]clicks"], EVERYWHERE, ["LOOP 01 AB a0.orders"]),
    (["prefix A B", "prefix B A"], EVERYWHERE, ["GROWING_NAMES 01 AB b0.a0.clicks,b0.a0.orders"]),
    (["prefix A B", "prefix B C", "prefix C D", "prefix D A"], ORDERS, ["GROWING_NAMES 0123 ABCD d0.c0.b0.a0.orders"]),
    # a copy's topic has no other source
    (["copy A C", "copy B C"], ORDERS, []),
    (["copy A C", "copy B C"], EVERYWHERE, ["TARGET_TWICE 01 ABC clicks,orders"]),
    (["copy A C", "copy B C orders"], ORDERS, ["TARGET_TWICE 01 ABC orders"]),
    (["copy A B", "copy A C", "copy B D", "merge C D"], ORDERS, ["TARGET_TWICE 23 BCD orders"]),
    (["copy A C", "prefix B C"], EVERYWHERE, []),
    (["merge A C", "merge B C"], EVERYWHERE, []),
    # clusters that are the same
    (["copy A A"], ORDERS, ["SAME_CLUSTER 0 A"]),
    (["merge A+B B"], ORDERS, ["SAME_CLUSTER 0 B"]),
    (["merge A+B+A C"], ORDERS, ["SAME_SOURCE 0 A"]),
]


@pytest.mark.parametrize(("words", "topics", "findings"), TOPOLOGIES)
def test_topologies(words: list[str], topics: Mapping[str, list[str]], findings: list[str]) -> None:
    assert seen(find(mirrors(*words), topics)) == findings


def test_two_mirrors_of_one_name_share_a_group_only_on_one_target() -> None:
    assert seen(find([mirror("merge A C"), mirror("merge B C")], {})) == ["SAME_NAME 00 C"]
    assert find([mirror("merge A C"), mirror("merge A D")], {}) == []


def test_the_worst_comes_first() -> None:
    found = find(mirrors("merge A B", "merge B A", "copy C D", "copy D E", "copy E C", "copy B B"), EVERYWHERE)
    assert seen(found) == ["SAME_CLUSTER 5 B", "LOOP 234 CDE clicks,orders", "RING 01 AB clicks,orders"]
    assert [each.kind.severity for each in found] == [Severity.ERROR, Severity.ERROR, Severity.NOTICE]
    rank = list(Severity)
    assert all(rank.index(one.severity) <= rank.index(other.severity) for one, other in pairwise(Kind))


def test_a_finding_names_files_mirrors_clusters_and_topics() -> None:
    (found,) = find(mirrors("merge A B", "copy B A"), ORDERS)
    assert str(found) == (
        "mirror m0 (m0.toml), mirror m1 (m1.toml): a loop with a copy in it: records would circle for ever: clusters A, B; topic orders"
    )
    (found,) = find(mirrors("merge A B", "copy B A"), {"A": [f"t{number}" for number in range(7)]})
    assert str(found).endswith("; topics t0, t1, t2, t3, t4 and 2 more")


def test_a_mesh_of_many_clusters_is_searched_in_few_steps() -> None:
    """Claim: where each of eight clusters gets the topics of all others, each mirror is found, and not every permutation followed."""
    words = [f"prefix {'+'.join(other for other in 'ABCDEFGH' if other != target)} {target}" for target in "ABCDEFGH"]
    found = find(mirrors(*words), {cluster: [f"t{number}" for number in range(20)] for cluster in "ABCDEFGH"})
    assert {each.kind for each in found} == {Kind.GROWING_NAMES}
    assert {one.plan.name for each in found for one in each.mirrors} == {f"m{number}" for number in range(8)}


CLUSTERS = "ABCD"
EDGES = st.lists(
    st.sampled_from([f"{kind} {one} {other}" for kind in ("copy", "merge") for one in CLUSTERS for other in CLUSTERS]), max_size=7
)


def comes_back(edges: list[tuple[str, str]], one: str, other: str) -> bool:
    """Whether there is a way from `other` to `one`: every step is tried until nothing new is reached."""
    there = {other}
    while more := {end for start, end in edges if start in there} - there:
        there |= more
    return one in there


@given(EDGES)
def test_a_mirror_is_in_a_ring_if_there_is_a_way_back_from_its_target(words: list[str]) -> None:
    """Claim: of mirrors of a topic that every cluster has, those and no others are in loops or rings that lead back to their sources."""
    plans = mirrors(*words)
    edges = [(one, other) for _, one, other in map(str.split, words) if one != other]
    found = [each for each in find(plans, EVERYWHERE) if each.kind in (Kind.LOOP, Kind.BOTH_WAYS, Kind.RING)]
    assert not [each for each in find(plans, EVERYWHERE) if each.kind in (Kind.POSSIBLE_RING, Kind.GROWING_NAMES)]
    assert {one for each in found for one in each.mirrors} == {
        plan for plan, (_, one, other) in zip(plans, map(str.split, words), strict=True) if one != other and comes_back(edges, one, other)
    }
    for each in found:
        assert (each.kind is not Kind.RING) == any(one.plan.mode.value == "copy" for one in each.mirrors)
