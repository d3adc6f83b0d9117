"""Our codec writes and reads what Kafka's own Java classes do.

Checked in are messages with the bytes that Java made of them: keys 4 to 7 by Kafka 3.9, the last that has them, and the data path by
Kafka 4.3. With Maven at hand the bytes are made anew, and for fresh values of every message at every version.
"""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import decode, encode
from support.java_codec import from_json, java_bytes, java_name, read_golden, to_json
from support.messages import Case, cases, few, values

GOLDEN = Path(__file__).parents[1] / "golden"
BROKER_TO_BROKER = (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN)
DATA_PATH = (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.LIST_OFFSETS)
FILES = {"3.9.1": GOLDEN / "messages-kafka-3.9.1.jsonl", "4.3.0": GOLDEN / "messages-kafka-4.3.0.jsonl"}


@pytest.mark.parametrize(
    ("case", "value", "data"),
    [pytest.param(*row, id=f"{row[0]} {number}") for path in FILES.values() for number, row in enumerate(read_golden(path))],
)
def test_golden_bytes(case: Case, value: dict[str, Any], data: bytes) -> None:
    message = from_json(case.cls, value, case.version)
    assert encode(message, case.version) == data
    assert decode(*case, memoryview(data)) == message
    assert to_json(message, case.version) == value


def test_the_golden_files_cover_keys_4_to_7_and_the_data_path() -> None:
    present = {version: {case for case, _, _ in read_golden(path)} for version, path in FILES.items()}
    assert present["3.9.1"] == {case for api_key in BROKER_TO_BROKER for case in cases(api_key)}
    for api_key in DATA_PATH:
        assert len({case.version for case in present["4.3.0"] if case.cls.API is api_key}) >= 4, api_key.name


@pytest.mark.parametrize(
    ("field", "java"), [("leader_epoch", "leaderEpoch"), ("v0_host", "v0Host"), ("is_kraft_controller", "isKRaftController")]
)
def test_names_in_java(field: str, java: str) -> None:
    assert java_name(field) == java


@pytest.mark.system
@pytest.mark.parametrize("kafka_version", FILES)
def test_java_makes_the_golden_bytes_again(kafka_version: str) -> None:
    golden = read_golden(FILES[kafka_version])
    assert java_bytes(kafka_version, [(case, value) for case, value, _ in golden]) == [data for _, _, data in golden]


@pytest.mark.system
@pytest.mark.parametrize("kafka_version", FILES)
def test_java_agrees_on_fresh_values_of_every_message(kafka_version: str) -> None:
    theirs = [api_key for api_key in ApiKey if api_key is not ApiKey.ALTER_MIRROR]
    api_keys = [api_key for api_key in theirs if (api_key in BROKER_TO_BROKER) == (kafka_version == "3.9.1")]
    drawn = [(case, message) for api_key in api_keys for case in cases(api_key) for message in draw(case)]
    encoded = java_bytes(kafka_version, [(case, to_json(message, case.version)) for case, message in drawn])
    for (case, message), data in zip(drawn, encoded, strict=True):
        assert encode(message, case.version) == data, f"{case}: {message}"


def draw(case: Case) -> list[Any]:
    """A few values that this version can carry."""
    found: list[Any] = []

    @few
    @given(values(*case))
    def collect(message: Any) -> None:
        found.append(message)

    collect()
    return found
