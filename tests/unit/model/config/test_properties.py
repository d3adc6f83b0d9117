"""A server.properties of Apache Kafka is read as Kafka reads it; what this version does not have is named with its reason.

Nothing is skipped in silence: what would be dangerous to ignore is refused, the rest is passed over with a line.
"""

import pytest

from moldau.model.config import InvalidConfigError, format_value, read_static
from moldau.model.config.file import read_properties
from moldau.model.config.kafka_names import absent
from moldau.model.config.static import StaticConfig
from moldau.model.config.tables import BROKER

KRAFT = """\
# one node
process.roles=broker,controller
node.id=1
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://:9092,CONTROLLER://:9093
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
controller.listener.names=CONTROLLER
num.network.threads=3
log.dirs=/var/lib/kafka
num.partitions=2
"""


def read(text: str) -> StaticConfig:
    return read_static(file_text=text, file_name="server.properties")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.b=1", [("a.b", "1", "f:1")]),
        ("# no\n! no\n\n  a : 1  \n", [("a", "1", "f:4")]),
        ("a 1", [("a", "1", "f:1")]),
        ("a=", [("a", "", "f:1")]),
        ("a", [("a", "", "f:1")]),
        ("a=1,\\\n   2,\\\n  3\nb=4", [("a", "1,2,3", "f:1"), ("b", "4", "f:4")]),
        ("a=C\\:\\\\x\\t\\u0041", [("a", "C:\\x\tA", "f:1")]),
        ("a\\ b=1", [("a b", "1", "f:1")]),
        ("a=1\na=2", [("a", "2", "f:2")]),
        ("a=1\\", [("a", "1", "f:1")]),
        ("a=b=c", [("a", "b=c", "f:1")]),
    ],
)
def test_the_format_is_javas(text: str, expected: list[tuple[str, str, str]]) -> None:
    assert [tuple(entry) for entry in read_properties(text, "f")] == expected


def test_a_broken_escape_names_file_and_line() -> None:
    with pytest.raises(InvalidConfigError, match=r"^f:2: \\u needs four"):
        read_properties("a=1\nb=\\u12", "f")


def test_the_file_of_a_kraft_node_starts_a_broker_here() -> None:
    static = read(KRAFT)
    assert static.texts["listeners"] == "PLAINTEXT://:9092"
    assert static.texts["advertised.listeners"] == "PLAINTEXT://localhost:9092"
    assert static.texts["num.partitions"] == "2"
    assert static.origin["num.partitions"] == "server.properties:11"
    assert [each.split(": ")[:2] for each in static.passed_over] == [
        ["server.properties:2", "process.roles"],
        ["server.properties:4", "controller.quorum.bootstrap.servers"],
        ["server.properties:8", "controller.listener.names"],
    ]


@pytest.mark.parametrize("name", ["ssl.keystore.location", "sasl.enabled.mechanisms", "super.users", "authorizer.class.name"])
def test_what_would_be_dangerous_to_ignore_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfigError, match=rf"^server.properties:2: configuration '{name}' of Apache Kafka does not exist .* TLS"):
        read(f"num.partitions=1\n{name}=x\n")


def test_a_slip_of_the_pen_is_refused_and_not_passed_over() -> None:
    with pytest.raises(InvalidConfigError, match=r"server.properties:1: unknown .* did you mean 'replica.lag.time.max.ms'"):
        read("replica.lag.time.max.m=1\n")
    with pytest.raises(InvalidConfigError, match=r"unknown configuration 'nothing.like.it'"):
        read("nothing.like.it=1\n")


def test_in_a_toml_file_and_on_the_command_line_no_name_is_passed_over() -> None:
    for given in ({"file_text": 'process.roles = "broker"', "file_name": "m.toml"}, {"settings": ["process.roles=broker"]}):
        with pytest.raises(InvalidConfigError, match=r"'process.roles' of Apache Kafka does not exist in this version: .*KRaft"):
            read_static(**given)


def test_a_setting_that_exists_is_taken_also_where_its_family_is_absent() -> None:
    family = [name for name in BROKER if absent(name) is not None]
    assert {"quota.window.num", "replica.lag.time.max.ms", "security.inter.broker.protocol"} <= set(family)
    text = "".join(
        f"{name}={format_value(BROKER[name], BROKER[name].default) or ''}\n" for name in family if BROKER[name].default is not None
    )
    assert set(read(text).texts) == {name for name in family if BROKER[name].default is not None}
