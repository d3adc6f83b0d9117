"""What is advertised is what Kafka 4.3 advertises; where that differs from what is spoken, a reason is given."""

import warnings

import pytest

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.versions import CODEC, EXEMPTIONS, FLEXIBLE_FROM, SERVED

KAFKA_3_9 = {ApiKey.LEADER_AND_ISR: (0, 7), ApiKey.STOP_REPLICA: (0, 4), ApiKey.UPDATE_METADATA: (0, 8), ApiKey.CONTROLLED_SHUTDOWN: (0, 3)}


def kafka_4_3() -> dict[int, tuple[int, int]]:
    """What a real broker answered, as kafka-python keeps it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from kafka.protocol.broker_version_data import BROKER_API_VERSIONS
    captured: dict[int, tuple[int, int]] = BROKER_API_VERSIONS[4, 3]
    return captured


OWN = {ApiKey.ALTER_MIRROR}


@pytest.mark.parametrize("api_key", [key for key in ApiKey if key not in OWN], ids=lambda key: key.name)
def test_ranges_are_those_of_kafka(api_key: ApiKey) -> None:
    expected = KAFKA_3_9[api_key] if api_key in KAFKA_3_9 else kafka_4_3()[api_key]
    assert SERVED[api_key] == expected


def test_keys_of_our_own_are_far_from_those_of_kafka() -> None:
    assert min(OWN) >= 10_000 > 10 * max(set(ApiKey) - OWN)


def test_every_api_is_in_every_table() -> None:
    assert set(CODEC) == set(FLEXIBLE_FROM) == set(SERVED) == set(ApiKey)


def test_exemptions_have_reasons() -> None:
    different = {key for key in ApiKey if CODEC[key] != SERVED[key]}
    assert different == set(EXEMPTIONS)
    assert all(len(exemption.reason) > 20 for exemption in EXEMPTIONS.values())


def test_produce_is_advertised_from_zero_and_spoken_from_three() -> None:
    assert SERVED[ApiKey.PRODUCE] == (0, 13)
    assert CODEC[ApiKey.PRODUCE] == (3, 13)
