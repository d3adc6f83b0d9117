"""Folder names are parsed as Kafka parses them, and what is no partition's is recognised as such."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.log.names import Folder, FolderKind, marked_name, parse_folder
from moldau.model.identity import TopicPartition

HEX = "0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize(
    ("name", "kind", "topic", "partition"),
    [
        ("orders-0", FolderKind.LOG, "orders", 0),
        ("a-b.c_d-17", FolderKind.LOG, "a-b.c_d", 17),
        ("t-1-2", FolderKind.LOG, "t-1", 2),
        ("__consumer_offsets-49", FolderKind.LOG, "__consumer_offsets", 49),
        (f"orders-3.{HEX}-delete", FolderKind.DELETE, "orders", 3),
        (f"o.r-d-3.{HEX}-stray", FolderKind.STRAY, "o.r-d", 3),
        (f"orders-3.{HEX}-future", FolderKind.FUTURE, "orders", 3),
        ("some-delete-3", FolderKind.LOG, "some-delete", 3),
    ],
)
def test_names_of_partitions(name: str, kind: FolderKind, topic: str, partition: int) -> None:
    assert parse_folder(name) == Folder(name, kind, TopicPartition(topic, partition))


@pytest.mark.parametrize(
    "name",
    ["", "-", "-0", "orders", "orders-", "orders-x", "orders--", "orders-2147483648", "orders-99999999999999999999", "orders-٣",
     "lost+found",
     "meta.properties", "__cluster_metadata-0", "remote-log-index-cache", f"orders.{HEX}-delete", "orders-0-delete", "orders-0.-delete"],
)  # fmt: skip
def test_names_that_are_no_partitions(name: str) -> None:
    assert parse_folder(name) is None


@given(st.integers(1, 249), st.integers(0, 2**31 - 1), st.binary(min_size=16, max_size=16), st.sampled_from(list(FolderKind)[1:]))
def test_a_marked_name_fits_and_tells_its_kind(length: int, partition: int, unique: bytes, kind: FolderKind) -> None:
    name = marked_name(TopicPartition("t" * length, partition), kind, unique)
    assert len(name) <= 255
    folder = parse_folder(name)
    assert folder is not None
    assert folder.kind is kind
    assert folder.topic_partition.partition == partition
    if length < 190:
        assert folder.topic_partition.topic == "t" * length
