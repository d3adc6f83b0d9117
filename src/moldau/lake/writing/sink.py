"""The writers that Spark knows: a batch's and a stream's. They decide what runs in which process, and do nothing themselves.

A batch goes like this, on the driver (in Python processes that Spark starts for one question each) and in the tasks:

1. driver: Spark makes a writer and pickles it for the tasks. That is the moment a batch begins, and the only one at which Spark calls the
   driver before the tasks: it is seen whether the brokers answer; a transactional query is claimed then, and the claim goes with the pickle
   (`__getstate__`).
2. tasks: `write` gives a message with what was written, and the claim.
3. driver: `commit` or `abort` with the messages of the tasks that count. Of a stream this is another process with another writer, so
   the claim comes back in the messages. Spark calls `abort` also where `commit` failed.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from moldau.lake.python_tasks import BALLAST
from moldau.lake.reading.offsets import OptionError
from moldau.lake.writing.encoding import layout
from moldau.lake.writing.options import NO_BATCH_ID, NO_RUN, parse_write_options
from moldau.lake.writing.steps import WriteSteps, is_decided

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql.types import StructType

    from moldau.lake.writing.decisions import TaskTransaction
    from moldau.lake.writing.driver import DriverClaim

_BATCH_ID, _QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"
"""What Spark gives to the tasks of a stream."""


@dataclass
class WriteMessage(WriterCommitMessage):
    """What one task reports to the driver."""

    rows: int
    transaction: "TaskTransaction | None" = None
    claim: "DriverClaim | None" = None
    run: str = NO_RUN


class _Sink:
    """What both writers have in common."""

    def __init__(self, steps: WriteSteps) -> None:
        self.steps = steps
        self.claim: DriverClaim | None = None
        self.ballast = BALLAST
        self._begun = False

    def __getstate__(self) -> dict[str, Any]:
        """The writer is sent to the tasks: the batch begins. Errors of `WriteSteps.begin`."""
        if not self._begun:
            self.claim = self.steps.begin()
            self._begun = True
        return self.__dict__

    def _written(self, batches: Iterator[Any], run: str, batch: int) -> WriteMessage:
        if is_decided(self.claim, run, batch):
            for _ in batches:  # Spark ends a worker that leaves rows
                pass
            return WriteMessage(0, None, self.claim, run)
        result = self.steps.write(batches)
        return WriteMessage(result.rows, result.transaction, self.claim, run)

    def _committed(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        how = self.steps.options.transactions
        claim, run, transactions = _summary(messages)
        if how is None:
            return
        if claim is None:
            raise RuntimeError(f"query {how.query}: batch {batch} has {len(messages)} messages of tasks, none of them with a claim")
        self.steps.commit(claim, run, batch, transactions)

    def _aborted(self, messages: Sequence[WriterCommitMessage | None], batch: int) -> None:
        claim, run, transactions = _summary(messages)
        claim = claim or self.claim
        if claim is not None:
            self.steps.abort(claim, run, batch, transactions)


class MoldauWriter(_Sink, DataSourceArrowWriter):
    """Writes a batch."""

    def write(self, iterator: Iterator[Any]) -> WriteMessage:
        """One task's rows."""
        return self._written(iterator, self._run, self._batch)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks have written."""
        self._committed(messages, self._batch)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Some task has failed, or the commit."""
        self._aborted(messages, self._batch)

    @property
    def _batch(self) -> int:
        how = self.steps.options.transactions
        return NO_BATCH_ID if how is None or how.batch is None else how.batch

    @property
    def _run(self) -> str:
        how = self.steps.options.transactions
        return NO_RUN if how is None else how.run


class MoldauStreamWriter(_Sink, DataSourceStreamArrowWriter):
    """Writes the batches of a stream."""

    def write(self, iterator: Iterator[Any]) -> WriteMessage:
        """One task's rows of one batch."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None
        batch, run = context.getLocalProperty(_BATCH_ID), context.getLocalProperty(_QUERY_ID)
        if batch is None or run is None:
            raise RuntimeError(f"Spark gave the task no {_BATCH_ID} or {_QUERY_ID}")
        return self._written(iterator, run, int(batch))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803  # Spark's name, as below
        """All tasks of a batch have written."""
        self._committed(messages, batchId)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Some task of a batch has failed, or its commit."""
        self._aborted(messages, batchId)


def batch_writer(given: "Mapping[str, str]", schema: "StructType", *, overwrite: bool) -> MoldauWriter:
    """A writer with options as Spark hands them over. OptionError, ColumnError."""
    if overwrite:
        raise OptionError("mode", "is append: what is in a topic cannot be overwritten")
    options = parse_write_options(given, streaming=False)
    return MoldauWriter(WriteSteps(options, layout(schema, options)))


def stream_writer(given: "Mapping[str, str]", schema: "StructType") -> MoldauStreamWriter:
    """A stream's writer. In complete mode all rows are appended with each batch, as the connector does. OptionError, ColumnError."""
    options = parse_write_options(given, streaming=True)
    return MoldauStreamWriter(WriteSteps(options, layout(schema, options)))


def _summary(messages: Sequence[WriterCommitMessage | None]) -> "tuple[DriverClaim | None, str, list[TaskTransaction]]":
    """The claim and the run that the tasks had, and their transactions."""
    ours = [each for each in messages if isinstance(each, WriteMessage)]
    claim = next((each.claim for each in ours), None)
    run = next((each.run for each in ours), NO_RUN)
    return claim, run, [each.transaction for each in ours if each.transaction is not None]
