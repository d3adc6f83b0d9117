"""A batch that is written by the process that has its DataFrame: no process of Spark's is asked, neither before nor after the tasks.

The driver begins and ends the batch itself, in this process; tasks write in a step over the rows (`mapInArrow`) and give their transactions
as its result. The results that Spark collects are those of the attempts that count. Those of others (a task that was repeated after it had
written, a stage that was, a copy of a slow task) stay open, and the driver aborts them with the end of the batch, or the next one does.
"""

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from moldau.lake.python_tasks import begun_early
from moldau.lake.writing.decisions import TaskTransaction
from moldau.lake.writing.encoding import layout
from moldau.lake.writing.options import NO_BATCH_ID, parse_write_options
from moldau.lake.writing.steps import WriteSteps, is_decided

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

_TRANSACTION = "transaction"


def steps_of(schema: "StructType", given: Mapping[str, str]) -> WriteSteps:
    """Of a transactional write of rows with this schema, with options of a batch in any case of letters. OptionError, ColumnError."""
    options = parse_write_options(given, streaming=False)
    return WriteSteps(options, layout(schema, options))


def write_frame(rows: Any, steps: WriteSteps) -> None:
    """Write the rows of a DataFrame in a transaction of a decision; of a batch that is decided the rows are computed, and not written.

    LostBatchError, DriverFencedError, WriteFailedError, WorldError, PeerError; PySparkException for what fails in tasks.
    """
    how = steps.options.transactions
    assert how is not None
    batch = NO_BATCH_ID if how.batch is None else how.batch
    claim = steps.begin()
    assert claim is not None
    transactions: list[TaskTransaction] = []
    if is_decided(claim, how.run, batch):
        rows.write.format("noop").mode("append").save()
        steps.commit(claim, how.run, batch, transactions)
        return
    try:
        reports = rows.mapInArrow(begun_early(partial(write_rows, steps=steps)), f"{_TRANSACTION} string").collect()
        transactions += [TaskTransaction.from_json(json.loads(each[_TRANSACTION])) for each in reports]
        steps.commit(claim, how.run, batch, transactions)
    except BaseException:
        steps.abort(claim, how.run, batch, transactions)
        raise


def write_rows(batches: Iterator[Any], *, steps: WriteSteps) -> Iterator[Any]:
    """What Spark calls in a task: the rows go into a transaction, which is what comes out; of no rows, nothing."""
    transaction = steps.write(batches).transaction
    if transaction is not None:
        yield pa.record_batch({_TRANSACTION: pa.array([json.dumps(transaction.to_json())])})
