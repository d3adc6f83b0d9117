"""Configurations are described with where they come from, changed as a whole or not at all, taken up at once, and kept over a restart."""

from pathlib import Path

import pytest

from moldau.cluster.controller.requests import TopicSpec
from moldau.cluster.snapshot import MetadataSnapshot
from moldau.model.config import BROKER, TOPIC, ConfigDefinition, ConfigType, UpdateMode
from moldau.model.errors import ErrorCode
from moldau.protocol.messages import configs
from moldau.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from support.administered import Administered, code

TOPICS, BROKERS, LOGGERS, CLIENT_METRICS, GROUPS = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
Edits = list[tuple[str, int, str | None]]


@pytest.fixture
def broker(tmp_path: Path) -> Administered:
    broker = Administered("log.retention.hours=2", store=str(tmp_path / "store"))
    broker.create(TopicSpec("t"), TopicSpec("u", configs=[("retention.ms", "5")]))
    broker.host.take()
    return broker


def describe_one(
    broker: Administered,
    kind: int,
    name: str,
    keys: list[str] | None = None,
    *,
    version: int = 4,
    synonyms: bool = True,
    docs: bool = False,
) -> DescribeConfigsResult:
    request = DescribeConfigsRequest([DescribeConfigsResource(kind, name, keys)], synonyms, docs if version >= 3 else False)
    (result,) = broker.ask(request, version, DescribeConfigsResponse).results
    assert (result.resource_type, result.resource_name) == (kind, name)
    return result


def described(broker: Administered, kind: int, name: str, keys: list[str] | None = None) -> dict[str, DescribeConfigsResourceResult]:
    result = describe_one(broker, kind, name, keys)
    assert result.error_code == 0
    return {each.name: each for each in result.configs}


def value(broker: Administered, kind: int, name: str, key: str) -> tuple[str | None, int]:
    entry = described(broker, kind, name, [key])[key]
    return entry.value, entry.config_source


def edit(broker: Administered, kind: int, name: str, edits: Edits, *, validate_only: bool = False, version: int = 1) -> str:
    request = IncrementalAlterConfigsRequest(
        [
            configs.IncrementalAlterConfigsResource(
                kind, name, [configs.IncrementalAlterableConfig(key, operation, text) for key, operation, text in edits]
            )
        ],
        validate_only,
    )
    (response,) = broker.ask(request, version, IncrementalAlterConfigsResponse).responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    assert (response.error_message is None) == (response.error_code == 0)
    return code(response.error_code)


def replace(
    broker: Administered, kind: int, name: str, values: list[tuple[str, str | None]], *, validate_only: bool = False, version: int = 2
) -> str:
    resource = configs.AlterConfigsResource(kind, name, [configs.AlterableConfig(key, text) for key, text in values])
    (response,) = broker.ask(AlterConfigsRequest([resource], validate_only), version, AlterConfigsResponse).responses
    return code(response.error_code)


# Describing


def test_a_topic_is_described_with_everything_it_could_set(broker: Administered) -> None:
    found = described(broker, TOPICS, "u")
    assert set(found) == set(TOPIC)
    assert not any(each.read_only or each.is_sensitive for each in found.values())
    assert {each.name: each.config_type for each in found.values()} == {name: definition.type for name, definition in TOPIC.items()}


def test_a_value_comes_with_all_that_would_stand_in_for_it(broker: Administered) -> None:
    entry = described(broker, TOPICS, "u")["retention.ms"]
    assert (entry.value, entry.config_source) == ("5", 1)
    assert [(each.name, each.value, each.source) for each in entry.synonyms] == [
        ("retention.ms", "5", 1),
        ("log.retention.hours", "2", 4),
        ("log.retention.hours", "168", 5),
    ]
    inherited = described(broker, TOPICS, "t")["retention.ms"]
    assert (inherited.value, inherited.config_source) == ("7200000", 4), "in the topic's own unit"


@pytest.mark.parametrize("version", range(1, 5))
def test_what_a_version_does_not_know_or_a_client_does_not_want_is_left_out(broker: Administered, version: int) -> None:
    result = describe_one(broker, TOPICS, "t", ["retention.ms", "no.such"], version=version, synonyms=False, docs=True)
    (entry,) = result.configs
    assert (entry.name, entry.synonyms) == ("retention.ms", [])
    assert bool(entry.documentation) == (version >= 3)
    assert describe_one(broker, TOPICS, "t", ["retention.ms"], version=version).configs[0].documentation is None


def test_no_key_and_null_both_mean_all(broker: Administered) -> None:
    assert len(described(broker, TOPICS, "t", [])) == len(described(broker, TOPICS, "t", None)) == len(TOPIC)


def test_a_broker_is_described_with_everything_and_says_what_it_takes_while_it_runs(broker: Administered) -> None:
    found = described(broker, BROKERS, "0")
    assert set(found) == set(BROKER)
    assert found["num.partitions"].read_only
    assert not found["log.retention.ms"].read_only
    assert (found["num.partitions"].value, found["default.replication.factor"].value) == ("1", "1")
    assert (found["log.retention.hours"].value, found["log.retention.hours"].config_source) == ("2", 4)
    assert (found["broker.rack"].value, found["broker.rack"].config_source, found["broker.rack"].synonyms) == (None, 5, [])


def test_all_brokers_are_described_by_what_is_set_for_all(broker: Administered) -> None:
    assert described(broker, BROKERS, "") == {}
    edit(broker, BROKERS, "", [("log.retention.ms", SET, "9"), ("message.max.bytes", SET, "8")])
    found = described(broker, BROKERS, "", ["log.retention.ms"])
    assert {name: (each.value, each.config_source) for name, each in found.items()} == {"log.retention.ms": ("9", 3)}


@pytest.mark.parametrize(
    ("kind", "name", "expected"),
    [
        (TOPICS, "no", "UNKNOWN_TOPIC_OR_PARTITION"),
        (TOPICS, "n o", "INVALID_TOPIC_EXCEPTION"),
        (TOPICS, "", "INVALID_REQUEST"),
        (BROKERS, "1", "INVALID_REQUEST"),
        (BROKERS, "x", "INVALID_REQUEST"),
        (LOGGERS, "0", "INVALID_REQUEST"),
        (CLIENT_METRICS, "x", "INVALID_REQUEST"),
        (GROUPS, "g", "INVALID_REQUEST"),
        (77, "x", "INVALID_REQUEST"),
    ],
)
def test_what_is_not_there_is_refused_whatever_is_wanted_of_it(broker: Administered, kind: int, name: str, expected: str) -> None:
    result = describe_one(broker, kind, name)
    assert (code(result.error_code), result.configs) == (expected, [])
    assert result.error_message
    assert edit(broker, kind, name, [("retention.ms", SET, "5")]) == expected
    assert replace(broker, kind, name, []) == expected
    assert broker.host.take() == []


def test_the_controller_decides_whether_there_is_a_topic_to_change(broker: Administered) -> None:
    """Claim: what its broker knows may be older, as that of one which has just become controller once more."""
    cache = broker.broker.cache
    cache.snapshot = MetadataSnapshot(cache.snapshot.cluster_id)
    assert edit(broker, TOPICS, "t", [("retention.ms", SET, "5")]) == "NONE"
    broker.restart()
    assert value(broker, TOPICS, "t", "retention.ms") == ("5", 1)


def test_a_secret_is_never_told(broker: Administered, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = ConfigDefinition("a.secret", ConfigType.PASSWORD, None, "A secret.", sensitive=True, mode=UpdateMode.PER_BROKER)
    monkeypatch.setitem(BROKER, "a.secret", secret)
    assert edit(broker, BROKERS, "0", [("a.secret", SET, "hunter2")]) == "NONE"
    entry = described(broker, BROKERS, "0", ["a.secret"])["a.secret"]
    assert (entry.is_sensitive, entry.value, entry.config_source) == (True, None, 2)
    assert [(each.name, each.value) for each in entry.synonyms] == [("a.secret", None)]
    assert broker.config.string("a.secret") == "hunter2"
    assert edit(broker, BROKERS, "", [("a.secret", SET, "hunter2")]) == "INVALID_REQUEST", "it belongs to a single broker"


def test_a_resource_named_twice_is_described_once(broker: Administered) -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPICS, "t", None)] * 3)
    assert len(broker.ask(request, 4, DescribeConfigsResponse).results) == 1


def test_one_bad_resource_does_not_spoil_the_others(broker: Administered) -> None:
    request = DescribeConfigsRequest([DescribeConfigsResource(TOPICS, name, None) for name in ("no", "t")])
    results = broker.ask(request, 4, DescribeConfigsResponse).results
    assert [(code(each.error_code), len(each.configs)) for each in results] == [("UNKNOWN_TOPIC_OR_PARTITION", 0), ("NONE", len(TOPIC))]


# Changing a topic


@pytest.mark.parametrize("version", range(2))
def test_a_change_of_a_topic_holds_at_once_and_after_a_restart(broker: Administered, version: int) -> None:
    assert edit(broker, TOPICS, "t", [("retention.ms", SET, " +7 "), ("max.message.bytes", SET, "9")], version=version) == "NONE"
    assert broker.host.take() == ["reconfigure t"]
    assert value(broker, TOPICS, "t", "retention.ms") == ("7", 1)
    broker.restart()
    assert value(broker, TOPICS, "t", "retention.ms") == ("7", 1)
    assert edit(broker, TOPICS, "t", [("retention.ms", DELETE, None)]) == "NONE"
    assert value(broker, TOPICS, "t", "retention.ms") == ("7200000", 4)
    assert value(broker, TOPICS, "t", "max.message.bytes") == ("9", 1)


@pytest.mark.parametrize("version", range(3))
def test_the_older_request_replaces_everything(broker: Administered, version: int) -> None:
    assert replace(broker, TOPICS, "u", [("max.message.bytes", "9")], version=version) == "NONE"
    assert value(broker, TOPICS, "u", "retention.ms") == ("7200000", 4)
    assert value(broker, TOPICS, "u", "max.message.bytes") == ("9", 1)
    assert replace(broker, TOPICS, "u", []) == "NONE"
    assert broker.metadata.topic_config("u") == {}


def test_lists_are_added_to_and_taken_from(broker: Administered) -> None:
    policy = "cleanup.policy"

    def after(operation: int, text: str) -> str | None:
        assert edit(broker, TOPICS, "t", [(policy, operation, text)]) == "NONE"
        return value(broker, TOPICS, "t", policy)[0]

    assert after(SUBTRACT, "compact") == "delete"
    assert after(APPEND, "compact") == "delete,compact"
    assert after(APPEND, "compact,delete") == "delete,compact"
    assert after(SUBTRACT, "delete") == "compact"
    assert after(SUBTRACT, "delete,compact") == ""
    assert after(APPEND, "delete") == "delete"


def test_appending_to_a_list_that_is_not_set_starts_from_what_holds() -> None:
    broker = Administered("log.cleanup.policy=compact")
    broker.create(TopicSpec("t"))
    edit(broker, TOPICS, "t", [("cleanup.policy", APPEND, "delete")])
    assert value(broker, TOPICS, "t", "cleanup.policy") == ("compact,delete", 1)


@pytest.mark.parametrize(
    ("edits", "expected"),
    [
        ([("no.such", SET, "1")], "INVALID_CONFIG"),
        ([("no.such", APPEND, "1")], "INVALID_CONFIG"),
        ([("retention.ms", SET, "x")], "INVALID_CONFIG"),
        ([("retention.ms", SET, "-2")], "INVALID_CONFIG"),
        ([("retention.ms", APPEND, "1")], "INVALID_CONFIG"),
        ([("retention.ms", SUBTRACT, "1")], "INVALID_CONFIG"),
        ([("cleanup.policy", APPEND, "rot")], "INVALID_CONFIG"),
        ([("min.compaction.lag.ms", SET, "9"), ("max.compaction.lag.ms", SET, "8")], "INVALID_CONFIG"),
        ([("retention.ms", SET, None)], "INVALID_REQUEST"),
        ([("cleanup.policy", APPEND, None)], "INVALID_REQUEST"),
        ([("retention.ms", SET, "1"), ("retention.ms", SET, "2")], "INVALID_REQUEST"),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], "INVALID_REQUEST"),
        ([("retention.ms", 9, "1")], "INVALID_REQUEST"),
    ],
)
def test_a_change_that_is_wrong_anywhere_changes_nothing(broker: Administered, edits: Edits, expected: str) -> None:
    assert edit(broker, TOPICS, "u", [("max.message.bytes", SET, "9"), *edits]) == expected
    assert broker.metadata.topic_config("u") == {"retention.ms": "5"}
    assert broker.host.take() == []


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([("no.such", "1")], "INVALID_CONFIG"),
        ([("retention.ms", "x")], "INVALID_CONFIG"),
        ([("retention.ms", None)], "INVALID_REQUEST"),
        ([("retention.ms", "1"), ("retention.ms", "2")], "INVALID_REQUEST"),
    ],
)
def test_a_replacement_that_is_wrong_anywhere_changes_nothing(
    broker: Administered, values: list[tuple[str, str | None]], expected: str
) -> None:
    assert replace(broker, TOPICS, "u", values) == expected
    assert broker.metadata.topic_config("u") == {"retention.ms": "5"}


def test_to_delete_what_is_not_set_or_not_known_is_no_error(broker: Administered) -> None:
    assert edit(broker, TOPICS, "t", [("retention.ms", DELETE, None), ("no.such", DELETE, None)]) == "NONE"
    assert edit(broker, TOPICS, "t", []) == "NONE"


def test_checking_only_changes_nothing(broker: Administered) -> None:
    assert edit(broker, TOPICS, "t", [("retention.ms", SET, "7")], validate_only=True) == "NONE"
    assert replace(broker, TOPICS, "u", [], validate_only=True) == "NONE"
    assert edit(broker, BROKERS, "0", [("log.retention.ms", SET, "7")], validate_only=True) == "NONE"
    assert edit(broker, TOPICS, "t", [("retention.ms", SET, "x")], validate_only=True) == "INVALID_CONFIG"
    assert value(broker, TOPICS, "t", "retention.ms") == ("7200000", 4)
    assert broker.metadata.topic_config("u") == {"retention.ms": "5"}
    assert broker.host.take() == []


def test_a_resource_named_twice_is_refused_others_are_changed(broker: Administered) -> None:
    change = [configs.IncrementalAlterableConfig("retention.ms", SET, "9")]
    request = IncrementalAlterConfigsRequest([configs.IncrementalAlterConfigsResource(TOPICS, name, change) for name in ("t", "u", "t")])
    responses = broker.ask(request, 1, IncrementalAlterConfigsResponse).responses
    assert [(each.resource_name, code(each.error_code)) for each in responses] == [
        ("t", "INVALID_REQUEST"),
        ("u", "NONE"),
        ("t", "INVALID_REQUEST"),
    ]
    assert broker.host.take() == ["reconfigure u"]


def test_a_store_that_fails_changes_nothing(broker: Administered) -> None:
    broker.tree.full = True
    assert edit(broker, TOPICS, "t", [("retention.ms", SET, "7")]) == "KAFKA_STORAGE_ERROR"
    assert edit(broker, BROKERS, "0", [("log.retention.ms", SET, "7")]) == "KAFKA_STORAGE_ERROR"
    assert value(broker, TOPICS, "t", "retention.ms") == ("7200000", 4)
    assert broker.config.int("log.retention.ms") == 7_200_000
    assert broker.host.take() == []


# Changing brokers


def test_a_change_of_all_brokers_holds_at_once_for_topics_that_set_nothing_and_after_a_restart(broker: Administered) -> None:
    assert edit(broker, BROKERS, "", [("log.retention.ms", SET, "9")]) == "NONE"
    assert broker.host.take() == ["reconfigure broker", "reconfigure t", "reconfigure u"]
    assert broker.config.int("log.retention.ms") == 9
    broker.restart()
    assert value(broker, TOPICS, "t", "retention.ms") == ("9", 3)
    assert value(broker, TOPICS, "u", "retention.ms") == ("5", 1)


def test_a_brokers_own_change_wins_over_that_of_all(broker: Administered) -> None:
    edit(broker, BROKERS, "", [("message.max.bytes", SET, "8")])
    edit(broker, BROKERS, "0", [("message.max.bytes", SET, "9")])
    entry = described(broker, BROKERS, "0")["message.max.bytes"]
    assert [(each.name, each.value, each.source) for each in entry.synonyms] == [
        ("message.max.bytes", "9", 2),
        ("message.max.bytes", "8", 3),
        ("message.max.bytes", "1048588", 5),
    ]
    assert replace(broker, BROKERS, "0", []) == "NONE"
    assert broker.config.int("message.max.bytes") == 8


def test_a_change_that_changes_no_value_disturbs_nobody(broker: Administered) -> None:
    edit(broker, BROKERS, "0", [("message.max.bytes", SET, "1048588")])
    assert broker.host.take() == []
    assert value(broker, BROKERS, "0", "message.max.bytes") == ("1048588", 2)


@pytest.mark.parametrize("name", ["0", ""])
@pytest.mark.parametrize(
    ("key", "text", "expected"),
    [
        ("num.partitions", "3", "INVALID_REQUEST"),
        ("broker.id", "3", "INVALID_REQUEST"),
        ("log.segment.bytes", "3", "INVALID_REQUEST"),
        ("log.segment.bytes", "x", "INVALID_REQUEST"),
        ("max.connections.per.ip.overrides", "nonsense", "INVALID_REQUEST"),
        ("retention.ms", "3", "INVALID_CONFIG"),
        ("no.such", "3", "INVALID_CONFIG"),
    ],
)
def test_what_a_running_broker_does_not_take_is_refused(broker: Administered, name: str, key: str, text: str, expected: str) -> None:
    assert edit(broker, BROKERS, name, [("message.max.bytes", SET, "9"), (key, SET, text)]) == expected
    assert replace(broker, BROKERS, name, [(key, text)]) == expected
    assert broker.config.int("message.max.bytes") == 1_048_588
    assert broker.host.take() == []


# Listing


def resources(broker: Administered, types: list[int], version: int = 1) -> tuple[str, list[tuple[str, int]]]:
    response = broker.ask(
        ListConfigResourcesRequest(types) if version else ListConfigResourcesRequest(), version, ListConfigResourcesResponse
    )
    return code(response.error_code), [(each.resource_name, each.resource_type) for each in response.config_resources]


def test_what_has_configurations_is_listed_by_type(broker: Administered) -> None:
    assert resources(broker, []) == ("NONE", [("t", TOPICS), ("u", TOPICS), ("0", BROKERS)])
    assert resources(broker, [TOPICS, TOPICS]) == ("NONE", [("t", TOPICS), ("u", TOPICS)])
    assert resources(broker, [BROKERS, LOGGERS, CLIENT_METRICS, GROUPS]) == ("NONE", [("0", BROKERS)])
    assert resources(broker, [TOPICS, 77]) == ("UNSUPPORTED_VERSION", [])
    assert resources(broker, [], 0) == ("NONE", []), "version 0 knows client metrics only, and there are none"


def test_settings_without_effect_are_named_once_when_a_topic_or_a_broker_gets_them(
    broker: Administered, caplog: pytest.LogCaptureFixture
) -> None:
    broker.create(TopicSpec("v", configs=[("preallocate", "true"), ("retention.ms", "5")]))
    edit(broker, TOPICS, "t", [("preallocate", SET, "true")])
    edit(broker, TOPICS, "t", [("retention.ms", SET, "7")])
    edit(broker, BROKERS, "", [("num.replica.fetchers", SET, "3")])
    assert [record.getMessage() for record in caplog.records if "without effect" in record.getMessage()] == [
        "settings without effect in this version: topic=v names=preallocate",
        "settings without effect in this version: topic=t names=preallocate",
        "settings without effect in this version: broker=all names=num.replica.fetchers",
    ]


def test_the_text_of_configurations_is_bounded(broker: Administered) -> None:
    """A list of a topic's could be as long as a request, for each of 100,000 topics."""
    text = ",".join(f"{partition}:0" for partition in range(4000))
    assert edit(broker, TOPICS, "t", [("leader.replication.throttled.replicas", SET, text)]) == "INVALID_CONFIG"
    assert edit(broker, TOPICS, "t", [("leader.replication.throttled.replicas", SET, text[:8000].rpartition(",")[0])]) == "NONE"
    assert edit(broker, BROKERS, "", [("protected.topics", SET, text)]) == "INVALID_CONFIG"
    made = broker.create(TopicSpec("long", configs=[("leader.replication.throttled.replicas", text)]))["long"]
    assert getattr(made, "code", None) is ErrorCode.INVALID_CONFIG
