"""A start after another process of the job: its checkpoints have to be those that the outputs were written with; its counts continue."""

import os
from collections.abc import Sequence
from dataclasses import replace

from moldau.streams.checkpoints import Checkpoint
from moldau.streams.errors import CheckpointError
from moldau.streams.reports import JobReport, QueryReport


def check_succession(job: str, before: JobReport | None, known: QueryReport, checkpoint: Checkpoint) -> None:
    """CheckpointError if a query's outputs were written with another checkpoint than this, or with it when it was further.

    `known` is the last report of the query, from `before` or without a batch.
    """
    here = checkpoint.run_id()
    where = f"job {job}, query {known.name}"
    ways = "or run with --fresh, which begins again and writes to the outputs again what they have already"
    if known.run is not None and known.run != here:
        what = "there is none" if here is None else f"there is the one with id {here}"
        assert before is not None
        raise CheckpointError(
            f"{where}: its batches up to {known.batch} were written with the checkpoint of id {known.run} in "
            f"{before.directory}; in {os.path.dirname(checkpoint.directory)} {what}. Bring that checkpoint back; {ways}"
        )
    newest = checkpoint.newest()
    if known.batch is not None and (newest is None or known.batch > newest):
        raise CheckpointError(
            f"{where}: its outputs have batch {known.batch}, and the checkpoint in {checkpoint.directory} ends with "
            f"{'no batch' if newest is None else f'batch {newest}'}: it is an older copy, whose next batches would be taken for those "
            f"that the outputs have. Bring the newest one back; {ways}"
        )


def succeeded(known: QueryReport, checkpoint: Checkpoint, places: Sequence[str]) -> QueryReport:
    """The report with which the query begins: the counts continue those of the same checkpoint."""
    return replace(known if known.run == checkpoint.run_id() else QueryReport(known.name), outputs=tuple(places))
