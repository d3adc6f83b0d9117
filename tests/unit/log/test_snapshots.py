"""The snapshots of a folder are whole, or they are not there."""

import pytest

from moldau.log.producer_entry import ProducerEntry
from moldau.log.producer_snapshots import Snapshots
from moldau.model.errors import StorageError
from moldau.testing.disk import ForgetfulDisk


@pytest.mark.parametrize("capacity", [0, 5])
def test_a_snapshot_that_does_not_fit_on_the_disk_leaves_no_half_of_it(capacity: int) -> None:
    disk = ForgetfulDisk()
    disk.make_directory("t-0")
    snapshots = Snapshots(disk, "t-0", [])
    disk.capacity = capacity
    with pytest.raises(StorageError) as told:
        snapshots.write(7, {1: ProducerEntry(3, 0)})
    assert told.value.no_space
    assert snapshots.offsets == []
    with pytest.raises(FileNotFoundError):
        disk.read(snapshots.path(7))
    disk.capacity = None
    snapshots.write(7, {1: ProducerEntry(3, 0)})
    found = snapshots.load_newest(7, 0, 10)
    assert found is not None
    assert list(found[1]) == [1]
