"""The text of `zookeeper.connect`, as Kafka's brokers take it."""

import pytest

from moldau.model.zookeeper_connect import parse_connect


@pytest.mark.parametrize(
    ("text", "servers", "chroot", "shown"),
    [
        ("h", (("h", 2181),), "", "h:2181"),
        ("h:1", (("h", 1),), "", "h:1"),
        ("a:1, b:2,c", (("a", 1), ("b", 2), ("c", 2181)), "", "a:1,b:2,c:2181"),
        ("a:1,b:2/kafka", (("a", 1), ("b", 2)), "/kafka", "a:1,b:2/kafka"),
        ("a:1/x/y/", (("a", 1),), "/x/y", "a:1/x/y"),
        ("a:1/", (("a", 1),), "", "a:1"),
        ("[::1]:7/x", (("::1", 7),), "/x", "[::1]:7/x"),
    ],
)
def test_servers_and_the_node_below_which_all_is(text: str, servers: tuple[tuple[str, int], ...], chroot: str, shown: str) -> None:
    connect = parse_connect(text)
    assert (connect.servers, connect.chroot, str(connect)) == (servers, chroot, shown)


@pytest.mark.parametrize(
    "text", ["", ",", "a:1,,b:2", "a:x", "a:0", "a:65536", ":2181", "a:1//x", "a:1/x//y", "a:1/../x", "a:1/x,b:2/./y", "a:1:2"]
)
def test_what_is_no_such_text_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not"):
        parse_connect(text)
