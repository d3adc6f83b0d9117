"""A dump shows what stands in each kind of file, and damage as a row among the others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from moldau.log.config import LogConfig
from moldau.log.dump import Row, UnknownFileError, dump
from moldau.testing.disk import ForgetfulDisk
from support.logs import CLUSTER, NOW_MS, append, create, make_batch, manager_over

SEGMENT = "/data/t-0/00000000000000000000"


@pytest.fixture(scope="module")
def disk() -> ForgetfulDisk:
    disk = ForgetfulDisk()
    manager = manager_over(disk)
    manager.start(NOW_MS)
    log = create(manager, "t", config=LogConfig(index_interval_bytes=100))
    log.lead_epoch(4)
    append(log, make_batch([b"a", b"bb"], producer_id=7, sequence=0, compression=1))
    append(log, make_batch([b"c" * 100], timestamp=NOW_MS + 5), make_batch([b"d"], timestamp=NOW_MS + 9))
    manager.shutdown()
    return disk


def rows(disk: ForgetfulDisk, path: str, *, records: bool = False) -> list[Row]:
    return list(dump(disk, path, records=records))


def test_batches(disk: ForgetfulDisk) -> None:
    first, second, third = rows(disk, f"{SEGMENT}.log")
    assert first == {
        "row": "batch",
        "position": 0,
        "size": first["size"],
        "base_offset": 0,
        "last_offset": 1,
        "count": 2,
        "base_timestamp": NOW_MS,
        "max_timestamp": NOW_MS + 1,
        "timestamp_type": "CreateTime",
        "compression": "gzip",
        "leader_epoch": 4,
        "producer_id": 7,
        "producer_epoch": 0,
        "base_sequence": 0,
        "last_sequence": 1,
        "transactional": False,
        "control": False,
        "delete_horizon": False,
        "crc": first["crc"],
        "valid": True,
    }
    assert [row["position"] for row in (second, third)] == [first["size"], first["size"] + second["size"]]


def test_records(disk: ForgetfulDisk) -> None:
    found = [row for row in rows(disk, f"{SEGMENT}.log", records=True) if row["row"] == "record"]
    assert found[1] == {"row": "record", "offset": 1, "timestamp": NOW_MS + 1, "sequence": 1, "key": b"k1", "value": b"bb", "headers": []}
    assert [row["offset"] for row in found] == [0, 1, 2, 3]


def test_indexes_snapshots_and_text_files(disk: ForgetfulDisk) -> None:
    sizes = [row["size"] for row in rows(disk, f"{SEGMENT}.log")]
    assert {"row": "offset", "position": 8, "offset": 3, "log_position": sum(sizes[:2])} in rows(disk, f"{SEGMENT}.index")
    assert {"row": "time", "position": 12, "timestamp": NOW_MS + 9, "offset": 3} in rows(disk, f"{SEGMENT}.timeindex")
    [producer] = rows(disk, "/data/t-0/00000000000000000004.snapshot")
    assert (producer["row"], producer["producer_id"], producer["last_sequence"]) == ("producer", 7, 1)
    assert rows(disk, "/data/t-0/leader-epoch-checkpoint") == [{"row": "leader_epoch", "epoch": 4, "start_offset": 0}]
    assert rows(disk, "/data/t-0/partition.metadata") == [{"row": "property", "name": "topic_id", "value": "AAECAwQFBgcICQoLDA0ODw"}]
    assert rows(disk, "/data/recovery-point-offset-checkpoint") == [{"row": "partition_offset", "topic": "t", "partition": 0, "offset": 4}]
    assert {"row": "property", "name": "cluster_id", "value": CLUSTER} in rows(disk, "/data/meta.properties")


def test_files_on_their_way_out_or_in_are_shown_by_what_they_are(disk: ForgetfulDisk) -> None:
    for mark in (".deleted", ".swap", ".cleaned"):
        disk.write_atomically(f"{SEGMENT}.log{mark}", disk.read(f"{SEGMENT}.log"))
        assert rows(disk, f"{SEGMENT}.log{mark}") == rows(disk, f"{SEGMENT}.log")


def test_a_bad_checksum_is_a_row_before_its_batch_and_the_others_follow(disk: ForgetfulDisk) -> None:
    data = bytearray(disk.read(f"{SEGMENT}.log"))
    size = rows(disk, f"{SEGMENT}.log")[0]["size"]
    data[size - 1] ^= 1
    disk.write_atomically("/data/00000000000000000000.log", bytes(data))
    found = rows(disk, "/data/00000000000000000000.log", records=True)
    assert found[0] == {"row": "damage", "position": 0, "message": "checksum does not match", "size": size, "offset": 0}
    assert (found[1]["row"], found[1]["valid"]) == ("batch", False)
    assert [row["row"] for row in found[2:]] == ["batch", "record", "batch", "record"]


def test_the_end_that_is_no_batch_is_one_row(disk: ForgetfulDisk) -> None:
    data = disk.read(f"{SEGMENT}.log")
    disk.write_atomically("/data/00000000000000000000.log", data + b"\0" * 100)
    last = rows(disk, "/data/00000000000000000000.log")[-1]
    assert (last["row"], last["position"], last["size"], last["offset"]) == ("damage", len(data), 100, 4)


@given(st.binary(max_size=300), st.sampled_from(["log", "index", "timeindex", "txnindex", "snapshot"]))
def test_any_bytes_can_be_dumped(data: bytes, suffix: str) -> None:
    disk = ForgetfulDisk()
    disk.write_atomically(f"/{0:020d}.{suffix}", data)
    for row in dump(disk, f"/{0:020d}.{suffix}", records=True):
        assert row["row"]


@given(
    st.binary(max_size=100),
    st.sampled_from(["recovery-point-offset-checkpoint", "leader-epoch-checkpoint", "partition.metadata", "meta.properties"]),
)
def test_any_text_can_be_dumped(data: bytes, name: str) -> None:
    disk = ForgetfulDisk()
    disk.write_atomically(f"/{name}", data)
    for row in dump(disk, f"/{name}"):
        assert row["row"]


def test_damaged_text_names_its_line() -> None:
    disk = ForgetfulDisk()
    disk.write_atomically("/leader-epoch-checkpoint", b"0\n2\n0 0\n")
    [row] = dump(disk, "/leader-epoch-checkpoint")
    assert (row["row"], row["position"]) == ("damage", "line 2")


@pytest.mark.parametrize("name", ["notes.txt", "x.log", ".log", "0.logs", "recovery-point"])
def test_other_files_are_refused(name: str) -> None:
    disk = ForgetfulDisk()
    disk.write_atomically(f"/{name}", b"")
    with pytest.raises(UnknownFileError, match=name):
        dump(disk, f"/{name}")


def test_a_missing_file_is_missing() -> None:
    with pytest.raises(FileNotFoundError):
        list(dump(ForgetfulDisk(), "/meta.properties"))
