"""Where the outputs of a job are, for who reads them: the place of now, and those before it, each with the part that belongs to the job's
output.

A reader that follows an output over switches reads each of its `places` from `begin` to `end`, one after the other; what is after the last
one's `begin` comes as it is written. One that wants all that the newest generation has made reads its place from the first record.
"""

import os
from collections.abc import Sequence

from moldau.streams.errors import StreamError
from moldau.streams.generations import OutputPlace
from moldau.streams.state_topic import StateTopic

_BROKERS = "127.0.0.1:9092"


def output(job: str, name: str | None = None, *, brokers: str | None = None) -> OutputPlace:
    """Where an output of a job is now: `name` is its topic, or the path of its table, in the job's file; a job with one needs none.

    StreamError if there is no such output; WorldError, PeerError. `brokers` is MOLDAU_BOOTSTRAP if it is not given.
    """
    return places(job, name, brokers=brokers)[-1]


def places(job: str, name: str | None = None, *, brokers: str | None = None) -> Sequence[OutputPlace]:
    """Where an output of a job was and is, the oldest first. Errors as those of `output`."""
    bootstrap = brokers or os.environ.get("MOLDAU_BOOTSTRAP") or _BROKERS
    topic = StateTopic(bootstrap)
    try:
        if not topic.exists():
            raise StreamError(f"no process has run a job {job} at {bootstrap}")
        board = topic.read()
    finally:
        topic.close()
    found = list(board.generations_of(job).places)
    if not found:
        report = board.process_of(job)
        if report is None:
            raise StreamError(f"no process has run a job {job} at {bootstrap}")
        named = [each.partition(" ") for query in report.queries for each in query.outputs]
        found = [OutputPlace(place, kind, place, report.generation) for kind, _, place in named]
    names = list(dict.fromkeys(each.output for each in found))
    if name is None and len(names) == 1:
        return found
    wanted = [each for each in found if name in (each.output, os.path.basename(each.output))]
    if name is None or not wanted:
        problem = "has several outputs: name one" if name is None else f"has no output {name}"
        raise StreamError(f"job {job} {problem}; they are {', '.join(names)}")
    if len({each.output for each in wanted}) > 1:
        exact = [each for each in wanted if each.output == name]
        if not exact:
            raise StreamError(f"job {job} has several outputs {name}: {', '.join(sorted({each.output for each in wanted}))}")
        return exact
    return wanted
