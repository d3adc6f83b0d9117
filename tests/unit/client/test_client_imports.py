"""Tools that ask brokers raw requests do not pay for librdkafka, nor do those who look at the library's names."""

import subprocess
import sys

import pytest

import moldau.client


@pytest.mark.parametrize(
    "code",
    [
        "import moldau.client",
        "import moldau.client.groups, moldau.client.admin, moldau.client.cluster, moldau.client.fetched_batches",
        "from moldau.client import Message, MessageSet, TopicPartition, partition_of, SendError",
        "import moldau.lake.reading.source, moldau.cli.group, moldau.cli.group_view, moldau.cli.group_reset, moldau.cli.consume",
    ],
)
def test_librdkafka_is_imported_when_it_is_needed(code: str) -> None:
    probe = f"{code}\nimport sys\nassert 'confluent_kafka' not in sys.modules"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_name_is_there() -> None:
    assert all(getattr(moldau.client, name).__name__ == name for name in moldau.client.__all__)
    with pytest.raises(AttributeError, match="has no attribute 'Publisher'"):
        moldau.client.Publisher  # noqa: B018


def test_without_confluent_kafka_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    for call in (moldau.client.Producer, lambda: moldau.client.Consumer(group_id="g")):
        with pytest.raises(ImportError, match=r"pip install 'moldau\[client\]'"):
            call()
