"""`moldau log verify` takes the holes of a compacted log for what they are, and those of any other log for loss."""

from moldau.log.findings import Finding, Severity
from moldau.log.verify import verify
from support.compaction import CONFIG, FOLDER, CompactionWorld


def compacted() -> CompactionWorld:
    """Holes between batches, within them, and before the next segment."""
    world = CompactionWorld(CONFIG._replace(segment_bytes=500))
    for number in range(40):
        world.append((b"%d" % (number % 5), b"v" * 30), (b"%d" % number, b"v"))
    world.roll_and_clean()
    world.append((b"x", b"1"))
    world.manager.shutdown()
    return world


def serious(world: CompactionWorld, path: str) -> list[Finding]:
    return [each for each in verify(world.disk, path, records=True) if each.severity is not Severity.NOTE]


def test_a_compacted_log_is_sound_by_the_checkpoint_beside_its_folder() -> None:
    world = compacted()
    assert serious(world, "/data") == []
    assert serious(world, FOLDER) == []


def test_the_same_log_without_that_checkpoint_has_lost_records() -> None:
    world = compacted()
    world.disk.remove("/data/cleaner-offset-checkpoint")
    assert {each.severity for each in serious(world, FOLDER)} == {Severity.GAP}


def test_the_active_segment_has_no_holes() -> None:
    """Compaction does not touch it."""
    world = compacted()
    world.start()
    for number in range(3):
        world.append((b"%d" % number, b"v"))
    world.manager.shutdown()
    active = max(world.names(".log"))
    file = world.disk.open(f"{FOLDER}/{active}", writable=True)
    size = file.size() // 4
    data = file.pread(file.size(), 0)
    file.truncate(2 * size)
    file.append([data[3 * size :]])
    (gap, *_) = [each for each in serious(world, "/data") if each.severity is Severity.GAP]
    assert gap.path.endswith(active)


def test_a_checkpoint_that_cannot_be_read_is_told_of_and_excuses_nothing() -> None:
    world = compacted()
    world.disk.write_atomically("/data/cleaner-offset-checkpoint", b"?")
    found = serious(world, "/data")
    assert {each.severity for each in found} == {Severity.GAP, Severity.DAMAGE}
    assert [each.path for each in found if each.severity is Severity.DAMAGE] == ["/data/cleaner-offset-checkpoint"]
