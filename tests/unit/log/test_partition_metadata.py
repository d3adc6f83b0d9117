"""A partition's folder carries its topic's id in Kafka's text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.log.damage import DamagedFileError
from moldau.log.partition_metadata import parse_partition_metadata, read_topic_id, write_topic_id
from moldau.model.identity import format_id, parse_id
from moldau.testing.disk import ForgetfulDisk

IDS = st.binary(min_size=16, max_size=16)


@given(IDS)
def test_an_id_and_its_text(value: bytes) -> None:
    text = format_id(value)
    assert len(text) == 22
    assert parse_id(text) == value


def test_a_text_of_kafkas() -> None:
    """``Uuid.METADATA_TOPIC_ID`` of Kafka is number 1."""
    assert format_id(bytes(15) + b"\x01") == "AAAAAAAAAAAAAAAAAAAAAQ"


@pytest.mark.parametrize("text", ["", "AAAAAAAAAAAAAAAAAAAAA", "AAAAAAAAAAAAAAAAAAAAAQ==", "AAAAAAAAAAAA AAAAAAAAA", "é" * 22, "A" * 23])
def test_texts_that_are_no_ids(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id"):
        parse_id(text)


def test_the_file_survives_a_crash_once_written() -> None:
    disk = ForgetfulDisk()
    disk.make_directory("/t-0")
    disk.sync_directory("/")
    assert read_topic_id(disk, "/t-0") is None
    write_topic_id(disk, "/t-0", bytes(range(16)))
    disk.crash()
    assert disk.read("/t-0/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\ncrc32c: 491ca7be"
    assert read_topic_id(disk, "/t-0") == bytes(range(16))


@pytest.mark.parametrize(
    ("data", "where"),
    [
        (b"", "line 1"),
        (b"version: 1\ntopic_id: AAECAwQFBgcICQoLDA0ODw", "line 1"),
        (b"version: 0\n", "line 1"),
        (b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODx\ncrc32c: 491ca7be", "line 3"),
        (b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\ncrc32c: 491ca7bf", "line 3"),
        (b"version: 0\ntopic_id: x", "line 2"),
        (b"version: 0\ntopic: AAECAwQFBgcICQoLDA0ODw", "line 2"),
        (b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "line 2"),
        (b"\0" * 40, "line 1"),
        (b"\xff\xfe\n\xff", "line 1"),
    ],
)
def test_damage_is_named_with_its_line(data: bytes, where: str) -> None:
    with pytest.raises(DamagedFileError, match=f"/t-0/partition.metadata, {where}"):
        parse_partition_metadata(data, "/t-0/partition.metadata")
