"""The file beside a segment's indexes is never synced: an older one may be there after a power cut. It does not know what came since."""

import pytest

from moldau.log.config import LogConfig
from moldau.log.partition_log import PartitionLog
from moldau.testing.disk import ForgetfulDisk
from support.one_log import DIRECTORY, NOW_MS, append, close_clean, flush, make_batch, new_disk, open_log
from support.searches import offset_for_timestamp

OLD_MS = NOW_MS - 900_000
CONFIG = LogConfig(segment_bytes=300, index_interval_bytes=0, retention_ms=600_000)
CHECKSUMS = f"{DIRECTORY}/00000000000000000000.checksums"


def grown(disk: ForgetfulDisk) -> int:
    """A first segment that was closed with old records and got young ones after the next start; the checksums are those of the close. The
    end offset."""
    log = open_log(disk, CONFIG)
    append(log, *(make_batch(b"old", timestamps=[OLD_MS + number]) for number in range(2)))
    close_clean(log)
    before = disk.read(CHECKSUMS)
    log = open_log(disk, CONFIG, recovery_point=2, clean=True)
    append(log, *(make_batch(b"young", timestamps=[NOW_MS + number]) for number in range(4)))
    flush(log)
    log.close()
    assert disk.read(CHECKSUMS) != before
    file = disk.open(CHECKSUMS, writable=True)
    file.truncate(0)
    file.append([before])
    file.release()
    return log.log_end_offset


@pytest.fixture
def log() -> PartitionLog:
    disk = new_disk()
    return open_log(disk, CONFIG, recovery_point=grown(disk))


def test_young_records_are_found_by_their_time(log: PartitionLog) -> None:
    found = offset_for_timestamp(log, NOW_MS)
    assert found is not None
    assert (found.timestamp_ms, found.offset) == (NOW_MS, 2)


def test_young_records_are_kept_by_retention(log: PartitionLog) -> None:
    assert log.apply_retention(NOW_MS) == []
    assert log.start_offset == 0


def test_a_clean_start_makes_nothing_anew(caplog: pytest.LogCaptureFixture) -> None:
    disk = new_disk()
    log = open_log(disk, CONFIG, recovery_point=grown(disk), clean=True)
    assert log.log_end_offset == 6
    assert "rebuilt" not in caplog.text
