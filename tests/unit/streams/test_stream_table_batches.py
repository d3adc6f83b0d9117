"""A table takes each batch of a query once, and refuses an older copy of the checkpoint, whose numbers it has for other batches."""

from pathlib import Path

import pyarrow as pa
import pytest

from moldau.lake.tables.committing import commit
from moldau.lake.tables.data_files import PARTITIONINGS, TIME_FIELDS
from moldau.lake.tables.format import TableChange
from moldau.lake.tables.opening import FORMATS, format_named, open_or_create
from moldau.streams.checkpoints import PlannedBatch
from moldau.streams.errors import CheckpointError
from moldau.streams.outputs import BatchNumber
from moldau.streams.table_output import batch_id, has_batch

SCHEMA = pa.schema([("name", pa.string()), *TIME_FIELDS])


def batch(number: int, end: int, run: str = "r1") -> BatchNumber:
    return BatchNumber("flights", "counts", run, number, PlannedBatch(0, 0, {"flights": {"0": end}}))


@pytest.mark.parametrize("table_format", FORMATS)
def test_an_older_copy_of_the_checkpoint_is_refused(table_format: str, tmp_path: Path) -> None:
    tables, path = format_named(table_format), str(tmp_path / "table")

    def has(which: BatchNumber) -> bool:
        return has_batch(tables, path, open_or_create(tables, path, SCHEMA, PARTITIONINGS["day"], ""), which)

    def add(*batches: BatchNumber) -> None:
        for each in batches:
            words = {"moldau.run": each.run, "moldau.batch": each.number, "moldau.input": each.planned.ends}
            commit(tables, path, TableChange("STREAM", offsets={batch_id(each): each.number}, metadata=words))

    assert not has(batch(0, 10))
    add(*(batch(number, 10 * number + 10) for number in range(3)))
    assert not has(batch(3, 40))
    assert has(batch(2, 30)), "it is repeated"
    with pytest.raises(CheckpointError, match=r"has batch 1 of flights/counts already, and batch 2 is its newest: the checkpoint of id r1"):
        has(batch(1, 20))
    with pytest.raises(
        CheckpointError, match=r'was read up to {"flights": {"0": 30}}, and the checkpoint has it up to {"flights": {"0": 35}}'
    ):
        has(batch(2, 35))
    assert not has(batch(0, 10, "r2")), "another checkpoint begins again"
    commit(tables, path, TableChange("OPTIMIZE", rows_change=False))
    with pytest.raises(CheckpointError, match="was read up to"):
        has(batch(2, 35))
    for _ in range(10):
        commit(tables, path, TableChange("OPTIMIZE", rows_change=False))
    assert has(batch(2, 30)), "what it was read up to is not known any more"
