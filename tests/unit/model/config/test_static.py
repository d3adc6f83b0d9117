"""File, environment and command line make one layer; whatever is wrong in them is refused, and the message says where it stands."""

import pytest

from moldau.model.config import TOPIC, BrokerConfig, ConfigSource, InvalidConfigError, Setting, read_static, without_effect
from moldau.model.config.listeners import Listener, parse_listener
from moldau.model.host_port import parse_host_port


def test_the_command_line_wins_over_the_environment_and_that_over_the_file() -> None:
    static = read_static(
        file_text="num.partitions = 2\nlog.segment.bytes = 2000000\nlog.retention.hours = 5\n",
        file_name="m.toml",
        environment={"MOLDAU_NUM_PARTITIONS": "3", "MOLDAU_LOG_SEGMENT_BYTES": "3000000", "PATH": "/bin"},
        settings=["num.partitions=4"],
    )
    config = BrokerConfig(static)
    assert (config.int("num.partitions"), config.int("log.segment.bytes"), config.int("log.retention.hours")) == (4, 3_000_000, 5)
    assert static.origin == {
        "num.partitions": "--set num.partitions=4",
        "log.segment.bytes": "MOLDAU_LOG_SEGMENT_BYTES",
        "log.retention.hours": "m.toml:3",
    }


def test_a_file_may_nest_or_quote_and_may_hold_a_name_that_begins_another() -> None:
    static = read_static(
        file_text="# a comment\nmax.connections = 5\nmax.connections.per.ip = 7\n\n[log]\nretention.ms = 9\n"
        '"cleanup.policy" = ["compact", "delete"]\n',
        file_name="m.toml",
    )
    assert static.texts == {
        "max.connections": "5",
        "max.connections.per.ip": "7",
        "log.retention.ms": "9",
        "log.cleanup.policy": "compact,delete",
    }
    assert static.origin["max.connections.per.ip"] == "m.toml:3"
    assert static.origin["log.retention.ms"] == "m.toml:6"
    assert static.origin["log.cleanup.policy"] == "m.toml:7"


def test_values_of_a_file_may_be_numbers_truths_texts_and_lists() -> None:
    static = read_static(
        file_text='num.partitions = 3\nauto.create.topics.enable = false\nbroker.rack = "r 1"\nlog.cleaner.min.cleanable.ratio = 0.25\n'
        'log.dirs = ["a", "b"]\n'
    )
    config = BrokerConfig(static)
    assert config.int("num.partitions") == 3
    assert config.boolean("auto.create.topics.enable") is False
    assert config.string("broker.rack") == "r 1"
    assert config.double("log.cleaner.min.cleanable.ratio") == 0.25
    assert config.list("log.dirs") == ("a", "b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\nnum.partition = 3\n", "m.toml:2: unknown configuration 'num.partition', did you mean 'num.partitions'?"),
        ("quite.another = 3\n", "m.toml:1: unknown configuration 'quite.another'"),
        ("num.partitions = 0\n", "m.toml:1: num.partitions: '0' is not allowed, must be int [1,...]"),
        ("[num]\npartitions = 'x'\n", "m.toml:2: num.partitions: 'x' is not allowed, must be int [1,...]"),
        ("num.partitions = 2024-01-01\n", "m.toml:1: num.partitions: a date is not a value of a configuration"),
        ("log.dirs = [[1]]\n", "m.toml:1: log.dirs: a list is not a value of a configuration"),
        ("num.partitions 3\n", "m.toml: Expected '=' after a key in a key/value pair (at line 1, column 16)"),
        ("num.partitions = 3\nnum.partitions = 4\n", "m.toml: Cannot overwrite a value (at line 2, column 19)"),
    ],
)
def test_an_error_in_a_file_names_file_and_line(text: str, message: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        read_static(file_text=text, file_name="m.toml")
    assert refused.value.message == message


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("num.partitions", "--set num.partitions: needs NAME=VALUE"),
        ("num.partitoins=3", "--set num.partitoins=3: unknown configuration 'num.partitoins', did you mean 'num.partitions'?"),
        ("retention.ms=3", "--set retention.ms=3: unknown configuration 'retention.ms', did you mean 'log.retention.ms'?"),
        ("num.partitions=many", "--set num.partitions=many: num.partitions: 'many' is not allowed, must be int [1,...]"),
        (
            "listeners=SSL:9092,x",
            "--set listeners=SSL:9092,x: listeners: 'SSL:9092,x' is not allowed, must be list of NAME://HOST:PORT",
        ),
    ],
)
def test_an_error_on_the_command_line_repeats_the_setting(setting: str, message: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        read_static(settings=[setting])
    assert refused.value.message == message


def test_metadata_is_kept_in_one_place() -> None:
    with pytest.raises(InvalidConfigError) as refused:
        read_static(environment={"MOLDAU_ZOOKEEPER_CONNECT": "one:2181"}, settings=["metadata.store.file=/data/cluster.sqlite"])
    assert refused.value.message == (
        "--set metadata.store.file=/data/cluster.sqlite: metadata is in a file or in ZooKeeper; set metadata.store.file or "
        "zookeeper.connect, not both (zookeeper.connect is given by MOLDAU_ZOOKEEPER_CONNECT)"
    )


def test_a_value_may_hold_an_equals_sign() -> None:
    assert read_static(settings=["broker.rack=a=b"]).texts == {"broker.rack": "a=b"}


def test_a_variable_that_is_nearly_ours_is_refused_others_are_not_ours_to_judge() -> None:
    with pytest.raises(InvalidConfigError, match="MOLDAU_NUM_PARTITION: no such variable, did you mean MOLDAU_NUM_PARTITIONS"):
        read_static(environment={"MOLDAU_NUM_PARTITION": "3"})
    with pytest.raises(InvalidConfigError, match=r"MOLDAU_NUM_PARTITIONS: num\.partitions: '' is not allowed"):
        read_static(environment={"MOLDAU_NUM_PARTITIONS": ""})
    assert read_static(environment={"MOLDAU_TORTURE": "1", "NUM_PARTITIONS": "3"}).texts == {}


def test_what_is_set_without_effect_can_be_told() -> None:
    static = read_static(settings=["num.io.threads=4", "num.partitions=4", "num.network.threads=3"])
    assert static.without_effect() == ["num.io.threads"], "3 is the default of the other one"


def test_a_static_value_is_shown_as_such() -> None:
    config = BrokerConfig(read_static(settings=["num.partitions=4"]))
    assert config.settings("num.partitions") == [
        Setting("num.partitions", "4", ConfigSource.STATIC_BROKER),
        Setting("num.partitions", "1", ConfigSource.DEFAULT),
    ]


@pytest.mark.parametrize(
    ("text", "listener"),
    [
        ("PLAINTEXT://localhost:9092", Listener("PLAINTEXT", "localhost", 9092)),
        ("localhost:0", Listener("PLAINTEXT", "localhost", 0)),
        ("PLAINTEXT://:9092", Listener("PLAINTEXT", "", 9092)),
        ("SSL://[::1]:65535", Listener("SSL", "::1", 65535)),
    ],
)
def test_a_listener_address(text: str, listener: Listener) -> None:
    assert parse_listener(text) == listener
    assert parse_listener(str(listener)) == listener


@pytest.mark.parametrize("text", ["localhost", "::1:9092", "[::1:9092", "h:65536", "h:-1", "h:x", "h:", ""])
def test_an_address_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"port|bracket"):
        parse_host_port(text)


def test_what_has_no_effect_is_named_only_where_it_differs_from_the_default() -> None:
    assert without_effect({"preallocate": "true", "retention.ms": "1"}, TOPIC) == ["preallocate"]
    assert without_effect({"preallocate": "false"}, TOPIC) == []
