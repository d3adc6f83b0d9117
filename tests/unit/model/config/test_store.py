"""Which value holds: a topic's own, this broker's dynamic one, the cluster's, the static one, the default; synonyms in each layer."""

import logging

import pytest

from moldau.model.config import BrokerConfig, ConfigSource, InvalidConfigError, Setting, check_dynamic_broker, check_topic, read_static


def broker(*settings: str, own: dict[str, str] | None = None, cluster: dict[str, str] | None = None) -> BrokerConfig:
    config = BrokerConfig(read_static(settings=settings))
    config.set_dynamic(own=own or {}, cluster=cluster or {})
    return config


def test_each_layer_wins_over_those_below() -> None:
    name = "log.segment.bytes"
    assert broker().int(name) == 1_073_741_824
    assert broker(f"{name}=2000000").int(name) == 2_000_000
    assert broker(f"{name}=2000000", cluster={name: "3000000"}).int(name) == 3_000_000
    config = broker(f"{name}=2000000", cluster={name: "3000000"}, own={name: "4000000"})
    assert config.int(name) == 4_000_000
    assert config.settings(name) == [
        Setting(name, "4000000", ConfigSource.DYNAMIC_BROKER),
        Setting(name, "3000000", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        Setting(name, "2000000", ConfigSource.STATIC_BROKER),
        Setting(name, "1073741824", ConfigSource.DEFAULT),
    ]
    topic = config.topic({"segment.bytes": "5000000"})
    assert topic.int("segment.bytes") == 5_000_000
    assert topic.settings("segment.bytes")[0] == Setting("segment.bytes", "5000000", ConfigSource.DYNAMIC_TOPIC)
    assert topic.settings("segment.bytes")[1:] == config.settings(name)


@pytest.mark.parametrize(
    ("settings", "retention_ms"),
    [
        ([], 7 * 24 * 3_600_000),
        (["log.retention.hours=2"], 7_200_000),
        (["log.retention.hours=2", "log.retention.minutes=3"], 180_000),
        (["log.retention.hours=2", "log.retention.minutes=3", "log.retention.ms=4"], 4),
        (["log.retention.hours=-1"], -1),
        (["log.retention.minutes=-1"], -1),
        (["log.retention.ms=-1", "log.retention.hours=2"], -1),
    ],
)
def test_finer_units_win_and_unlimited_stays_so(settings: list[str], retention_ms: int) -> None:
    config = broker(*settings)
    assert config.int("log.retention.ms") == retention_ms
    assert config.topic({}).int("retention.ms") == retention_ms


def test_a_coarser_unit_in_a_higher_layer_wins_over_a_finer_one_below() -> None:
    config = broker("log.retention.ms=4", cluster={"log.retention.ms": "5"})
    assert config.topic({}).int("retention.ms") == 5
    assert config.topic({}).settings("retention.ms") == [
        Setting("log.retention.ms", "5", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        Setting("log.retention.ms", "4", ConfigSource.STATIC_BROKER),
        Setting("log.retention.hours", "168", ConfigSource.DEFAULT),
    ]


def test_flush_time_falls_back_to_how_often_is_looked() -> None:
    assert broker().topic({}).int("flush.ms") == 2**63 - 1
    assert broker("log.flush.scheduler.interval.ms=50").topic({}).int("flush.ms") == 50
    assert broker("log.flush.scheduler.interval.ms=50", "log.flush.interval.ms=20").topic({}).int("flush.ms") == 20


def test_broker_id_has_two_names() -> None:
    assert broker().int("broker.id") == 0
    assert broker("node.id=3").int("broker.id") == 3
    assert broker("broker.id=4").int("node.id") == 4


def test_log_dirs_fall_back_to_log_dir() -> None:
    assert broker("log.dir=one").list("log.dirs") == ("one",)
    assert broker("log.dir=one", "log.dirs=a,b").list("log.dirs") == ("a", "b")


def test_a_change_tells_which_values_it_has_changed() -> None:
    config = broker("log.retention.ms=5")
    version = config.version
    assert config.set_dynamic(own={}, cluster={"log.retention.ms": "5"}) == set()
    assert config.set_dynamic(own={"message.max.bytes": "9"}, cluster={"log.retention.ms": "6"}) == {
        "message.max.bytes",
        "log.retention.ms",
    }
    assert config.int("message.max.bytes") == 9
    assert config.version == version + 2
    assert config.set_dynamic(own={"message.max.bytes": "9"}, cluster={"log.retention.ms": "6"}) == set()
    assert config.version == version + 2, "the same layers are no change"
    assert config.set_dynamic(own={}, cluster={}) == {"message.max.bytes", "log.retention.ms"}
    assert config.int("log.retention.ms") == 5


def test_what_another_version_stored_and_this_one_does_not_take_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        config = broker(
            own={"message.max.bytes": "many", "no.longer": "1", "log.retention.ms": "6"},
            cluster={"max.connections.per.ip.overrides": "nonsense"},
        )
    assert config.int("message.max.bytes") == 1_048_588
    assert config.int("log.retention.ms") == 6
    places = [record.message.partition(" reason=")[0].partition("node=")[2] for record in caplog.records]
    assert places == ["own name=message.max.bytes", "own name=no.longer", "cluster name=max.connections.per.ip.overrides"]


def test_a_wrong_name_or_type_is_our_own_bug() -> None:
    config = broker()
    with pytest.raises(KeyError):
        config.int("no.such")
    with pytest.raises(TypeError, match=r"num\.partitions is 1, not str"):
        config.string("num.partitions")
    with pytest.raises(TypeError, match=r"log\.retention\.minutes is None, not int"):
        config.int("log.retention.minutes")
    assert config.optional_string("broker.rack") is None


def test_what_a_topic_may_set() -> None:
    check_topic({"retention.ms": "5", "cleanup.policy": ""}, broker())
    with pytest.raises(InvalidConfigError, match=r"unknown topic configuration 'retention\.m', did you mean 'retention\.ms'\?"):
        check_topic({"retention.m": "5"}, broker())
    with pytest.raises(InvalidConfigError, match=r"min\.compaction\.lag\.ms \(10\) must not be larger than max\.compaction\.lag\.ms \(5\)"):
        check_topic({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"}, broker())
    with pytest.raises(InvalidConfigError, match="must not be larger"):
        check_topic({"min.compaction.lag.ms": "10"}, broker("log.cleaner.max.compaction.lag.ms=5"))


@pytest.mark.parametrize(
    ("name", "text", "for_all", "message"),
    [
        ("num.partitions", "3", False, "num.partitions cannot be changed while the broker runs"),
        ("no.such", "3", True, "unknown configuration 'no.such'"),
        ("log.segment.bytes", "3", True, "log.segment.bytes: '3' is not allowed, must be int"),
    ],
)
def test_what_a_running_broker_does_not_take(name: str, text: str, for_all: bool, message: str) -> None:
    with pytest.raises(InvalidConfigError) as refused:
        check_dynamic_broker({name: text}, for_all=for_all)
    assert message in refused.value.message
