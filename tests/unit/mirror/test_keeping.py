"""Records that a fail-back cuts are on disk before, and stay there whatever a later fail-back keeps at the same offset."""

import os
import stat
from pathlib import Path

import pytest

from moldau.mirror.keeping import RecordKeeper
from moldau.model.identity import TopicPartition
from moldau.protocol.records.batch import batches, iterate
from support.mirror_clusters import MirrorClusters, run

O0 = TopicPartition("orders", 0)


def values(path: str) -> list[bytes | None]:
    found = batches(memoryview(Path(path).read_bytes()))
    return [record.value for _, batch in found for record in iterate(batch, max_decompressed_bytes=1 << 20)]


def test_what_was_kept_stays_where_others_are_kept_at_the_same_offset(tmp_path: Path) -> None:
    async def story(clusters: MirrorClusters) -> None:
        keeper = RecordKeeper(clusters.source.brokers, tmp_path / "lost")
        await clusters.source.create("orders")
        await clusters.source.write(O0, "a", "b")
        first = await keeper.keep(O0, 0, 2)
        assert await keeper.keep(O0, 0, 2) == first, "a command that is repeated"
        await clusters.source.delete("orders")
        await clusters.source.create("orders")
        await clusters.source.write(O0, "x")
        second = await keeper.keep(O0, 0, 1)
        assert (values(first), values(second)) == ([b"a", b"b"], [b"x"])
        assert sorted(each.name for each in (tmp_path / "lost" / "orders-0").iterdir()) == [f"{0:020}.1.log", f"{0:020}.log"]

    run(story)


def test_the_file_and_its_directories_are_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: the records are cut after it, so a power cut may not take the file or its name."""
    synced: list[str] = []

    def fsync(fd: int) -> None:
        mode = os.fstat(fd).st_mode
        synced.append(os.readlink(f"/proc/self/fd/{fd}") if stat.S_ISDIR(mode) else "file")

    monkeypatch.setattr("moldau.mirror.keeping.os.fsync", fsync)

    async def story(clusters: MirrorClusters) -> None:
        await clusters.source.create("orders")
        await clusters.source.write(O0, "a")
        await RecordKeeper(clusters.source.brokers, tmp_path / "lost").keep(O0, 0, 1)

    run(story)
    assert synced[0] == "file"
    assert {str(tmp_path), str(tmp_path / "lost"), str(tmp_path / "lost" / "orders-0")} <= {*synced}
