"""The nodes of a group are those of Kafka 0.8, byte by byte, and what its consumers write is read."""

import pytest

from moldau.client.coordinated import nodes
from moldau.client.coordinated.nodes import Subscription
from moldau.cluster.znodes import MalformedNodeError
from moldau.model.identity import TopicPartition

P7 = TopicPartition("page-views", 7)


def test_paths() -> None:
    assert nodes.ids("g") == "/consumers/g/ids"
    assert nodes.registration("g", "g_host-1400000000000-1234abcd") == "/consumers/g/ids/g_host-1400000000000-1234abcd"
    assert nodes.owner("g", P7) == "/consumers/g/owners/page-views/7"
    assert nodes.offset("g", P7) == "/consumers/g/offsets/page-views/7"
    made: set[str] = set()
    for path in nodes.parents("g", ["page-views", "clicks"]):
        assert path.count("/") == 1 or path.rpartition("/")[0] in made, "parents come first"
        made.add(path)
    assert {"/consumers/g/ids", "/consumers/g/owners/clicks", "/consumers/g/offsets/page-views"} <= made


def test_a_subscription_by_name() -> None:
    data = nodes.encode_subscription({"page-views": 2, "clicks": 1}, 1400000000000)
    assert data == b'{"version":1,"subscription":{"page-views":2,"clicks":1},"pattern":"static","timestamp":"1400000000000"}'
    assert nodes.decode_subscription("/", data) == Subscription({"page-views": 2, "clicks": 1})
    assert [Subscription({"a": 2}).threads(topic) for topic in ("a", "b")] == [2, 0]


@pytest.mark.parametrize(
    ("pattern", "regex", "matches", "others"),
    [
        ("white_list", "page-.*", ["page-views"], ["clicks", "a-page-view", "_page-x"]),
        ("white_list", "clicks, page-views", ["clicks", "page-views"], ["click"]),
        ("white_list", ".*", ["clicks"], ["__consumer_offsets"]),
        ("black_list", "page-.*|clicks", ["orders"], ["page-views", "clicks", "__consumer_offsets"]),
    ],
)
def test_a_subscription_by_pattern(pattern: str, regex: str, matches: list[str], others: list[str]) -> None:
    """Kafka 0.8 has patterns of topics; internal ones are left out."""
    data = f'{{"version":1,"subscription":{{"{regex}":3}},"pattern":"{pattern}","timestamp":"1"}}'.encode()
    found = nodes.decode_subscription("/", data)
    assert [found.threads(topic) for topic in matches] == [3] * len(matches)
    assert [found.threads(topic) for topic in others] == [0] * len(others)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b'{"version":1}',
        b'{"version":1,"subscription":{"a":"many"}}',
        b'{"version":1,"subscription":[1]}',
        b'{"version":1,"subscription":{"a":1},"pattern":"other"}',
        b'{"version":1,"subscription":{"a":1,"b":1},"pattern":"white_list"}',
        b'{"version":1,"subscription":{"(":1},"pattern":"white_list"}',
    ],
)
def test_malformed_subscriptions_are_named(data: bytes) -> None:
    with pytest.raises(MalformedNodeError, match=r"^/consumers/g/ids/c: cannot read"):
        nodes.decode_subscription("/consumers/g/ids/c", data)


def test_offsets_are_plain_numbers() -> None:
    assert nodes.encode_offset(1234) == b"1234"
    assert nodes.decode_offset("/", b"1234") == 1234
    for data in (b"", b"-1", b"1.0", b"x"):
        with pytest.raises(MalformedNodeError):
            nodes.decode_offset("/o", data)


@pytest.mark.parametrize("group", ["", "a/b", ".", "..", "a\n"])
def test_names_that_are_no_nodes(group: str) -> None:
    with pytest.raises(ValueError, match="cannot be the name of a node"):
        nodes.check_group(group)
    nodes.check_group("page views")
