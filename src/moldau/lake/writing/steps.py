"""The steps of a write, of whichever process takes them: the driver begins, each task writes, the driver commits or aborts.

Two ways lead here: the writers of a data source, for which Spark starts processes of its own (`moldau.lake.writing.sink`), and a function
over a DataFrame, whose driver is the process that has it (`moldau.lake.writing.frames`). Nothing is imported before it is needed.
"""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from moldau.lake.python_tasks import spare_collections
from moldau.lake.writing.encoding import FrameLayout
from moldau.lake.writing.options import WriteOptions

if TYPE_CHECKING:
    from moldau.lake.writing.decisions import TaskTransaction
    from moldau.lake.writing.driver import DriverClaim
    from moldau.lake.writing.task import TaskResult

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class WriteSteps:
    """Of one write with these options, of rows like these."""

    options: WriteOptions
    layout: FrameLayout

    def begin(self) -> "DriverClaim | None":
        """Before the tasks; None: the write is not transactional. WorldError if no broker answers: each task would find that out alone, and
        take the whole time for deliveries. LostBatchError."""
        from moldau.lake.writing.driver import Driver
        from moldau.lake.writing.task import check_brokers

        check_brokers(self.options)
        if self.options.transactions is None:
            return None
        with Driver(self.options) as driver:
            return driver.begin()

    def write(self, batches: Iterator[Any]) -> "TaskResult":
        """In a task, to the last of its rows. Errors of `TaskWriter`."""
        from pyspark import TaskContext

        from moldau.lake.writing.decisions import task_id
        from moldau.lake.writing.task import TaskWriter

        spare_collections()
        how, transactional_id = self.options.transactions, None
        if how is not None:
            context = TaskContext.get()
            assert context is not None
            transactional_id = task_id(how.query, context.partitionId(), context.attemptNumber())
        with TaskWriter(self.options, self.layout, transactional_id) as writer:
            return writer.write(batches)

    def commit(self, claim: "DriverClaim", run: str, batch: int, transactions: "Sequence[TaskTransaction]") -> None:
        """All tasks have written; these are the transactions of the attempts that count. Of a batch that is decided a line in the log, and
        nothing else. Errors of `Driver.commit`.
        """
        from moldau.lake.writing.driver import Driver

        if is_decided(claim, run, batch):
            assert self.options.transactions is not None
            log.warning("query %s: batch %d was committed before and is not written again", self.options.transactions.query, batch)
            return
        with Driver(self.options) as driver:
            driver.commit(claim, run, batch, transactions)

    def abort(self, claim: "DriverClaim", run: str, batch: int, transactions: "Sequence[TaskTransaction]") -> None:
        """A task has failed, or the commit. Never fails: what is left open the next start aborts, or the brokers."""
        from moldau.lake.writing.driver import Driver
        from moldau.model.errors import MoldauError

        try:
            with Driver(self.options) as driver:
                driver.abort(claim, run, batch, transactions)
        except MoldauError as error:
            assert self.options.transactions is not None
            query = self.options.transactions.query
            log.warning("query %s: batch %d could not be aborted; the next start or the brokers do it: %s", query, batch, error)


def is_decided(claim: "DriverClaim | None", run: str, batch: int) -> bool:
    """Whether the batch was decided before this claim, so that it is not to be written again."""
    return claim is not None and claim.last is not None and claim.last.covers(run, batch)
