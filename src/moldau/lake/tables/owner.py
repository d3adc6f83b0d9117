"""Whose a topic is in a table: offsets stand under a job's name, so a job of another name would load each record a second time.

A job is known to a table by its application ids: those of the offsets, and its claim, which it makes where something of it must stand
before its first offsets do. Of jobs with different names only the first is let in, whether they come one after the other or at once.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from moldau.lake.tables.format import TableError, TableFormat

_CLAIM = "claim"


class OtherJobError(TableError):
    """A job of another name has loaded the topic into this table; the message names it."""


def application_id(job: str, topic_id: str, partition: int) -> str:
    """Name under which a table keeps the offset of one partition. A topic that is made anew has a new id, and starts anew."""
    return f"moldau:{job}:{topic_id}:{partition}"


def jobs_of(application_ids: Iterable[str], topic_id: str) -> list[str]:
    """The jobs that have loaded or claimed a topic, by the application ids of a table."""
    parts = (name.rsplit(":", 2) for name in application_ids if name.startswith("moldau:") and name.count(":") > 2)  # not a writer's
    found = {job.removeprefix("moldau:") for job, id_, last in parts if id_ == topic_id and (last.isdecimal() or last == _CLAIM)}
    return sorted(found)


@dataclass(frozen=True, slots=True)
class Owner:
    """A job that loads a topic into a table, and wants to be the only one."""

    job: str
    topic: str
    topic_id: str

    @property
    def claim_id(self) -> str:
        """The application id that says no more than that this job loads the topic."""
        return f"moldau:{self.job}:{self.topic_id}:{_CLAIM}"

    def is_known(self, tables: TableFormat, path: str) -> bool:
        """Whether the table knows this job; nobody may if not. OtherJobError if it knows another one and not this one.

        A table that two jobs have shared from of old knows both: neither adds a record twice from now on.
        """
        jobs = jobs_of(tables.application_ids(path), self.topic_id)
        if jobs and self.job not in jobs:
            raise OtherJobError(
                f"{path}: job {jobs[0]} loads topic {self.topic} into this table, and job {self.job} would load each record a "
                f"second time; load it under the name {jobs[0]}, or into another directory"
            )
        return bool(jobs)
