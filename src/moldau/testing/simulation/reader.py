"""A slow reader of a log directory's bytes, written apart from the product: where a log ends that is recovered from them.

That is the end of the longest whole prefix: batches that lie completely in their files, with a sound checksum, each at the offset that
follows the one before. Before the recovery point compaction may have left holes; from there on nothing may be missing, and leader epochs
do not fall.
"""

from struct import Struct

from fastcrc.crc32 import iscsi as crc32c

from moldau.testing.disk import ForgetfulDisk

_BATCH = Struct(">qiiBIhi")
"""Base offset, length, leader epoch, magic, checksum, attributes, last offset delta."""
_LENGTH_FROM, _CHECKED_FROM, _BYTES_MIN = 12, 21, 61
_RECOVERY_POINTS = "recovery-point-offset-checkpoint"


def ends_of_logs(disk: ForgetfulDisk, directory: str) -> dict[str, int]:
    """Per folder of a partition the offset at which its log ends after recovery. A folder where compaction has not ended is left out."""
    points = _recovery_points(disk, directory)
    ends = {}
    for folder in disk.list(directory):
        path = f"{directory}/{folder}"
        topic, _, number = folder.rpartition("-")
        if not topic or not number.isdigit() or not disk.is_directory(path):
            continue
        names = disk.list(path)
        if any(name.endswith((".swap", ".cleaned")) for name in names):
            continue
        bases = [int(name[:-4]) for name in names if name.endswith(".log") and name[:-4].isdigit()]
        if bases:
            ends[folder] = _end_of(disk, path, sorted(bases), points.get(folder, 0))
    return ends


def _recovery_points(disk: ForgetfulDisk, directory: str) -> dict[str, int]:
    if not disk.exists(f"{directory}/{_RECOVERY_POINTS}"):
        return {}
    points = {}
    for line in disk.read(f"{directory}/{_RECOVERY_POINTS}").decode().split("\n")[2:]:
        words = line.split()
        if len(words) == 3:
            points[f"{words[0]}-{words[1]}"] = int(words[2])
    return points


def _end_of(disk: ForgetfulDisk, path: str, bases: list[int], recovery_point: int) -> int:
    due, latest = bases[0], -1
    for base in bases:
        if base != due and (base < due or due >= recovery_point):
            return due
        due = max(due, base)
        data = disk.read(f"{path}/{base:020}.log")
        position = 0
        while position < len(data):
            if position + _BYTES_MIN > len(data):
                return due
            offset, length, epoch, magic, checksum, _, delta = _BATCH.unpack_from(data, position)
            end = position + _LENGTH_FROM + length
            if magic != 2 or length < _BYTES_MIN - _LENGTH_FROM or end > len(data) or delta < 0:
                return due
            if crc32c(data[position + _CHECKED_FROM : end]) != checksum:
                return due
            is_settled = offset + delta < recovery_point
            if offset != due and not (is_settled and offset > due):
                return due
            if not is_settled and 0 <= epoch < latest:
                return due
            latest = max(latest, epoch)
            due, position = offset + delta + 1, end
    return due
