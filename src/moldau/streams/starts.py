"""Where inputs begin that do not begin at their first record: found out when the job starts, and noted until each query has a batch.

::

    DIRECTORY/starts.json     {"queries": ["counts", "copy"], "starts": {"flights": {"0": 23, "1": 17}}}

Spark asks at each start where a query begins that has no batch yet, and "latest" is further on then: a first batch that was planned, and
was to be run again, would leave out what it had read. All queries that begin together do so at the same records, also one that is killed
before its first batch. A query that the job gets later begins later.
"""

import contextlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field

from moldau.adapters.whole_file import write_synced
from moldau.client.partition_requests import READ_COMMITTED
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.offsets import DataLossError, OptionError
from moldau.lake.reading.options import BOOTSTRAP, OptionScope, parse_options
from moldau.lake.reading.planning import StreamPlanner
from moldau.streams.checkpoints import Checkpoint, Positions
from moldau.streams.errors import CheckpointError, StreamError
from moldau.streams.inputs import TopicInput

FILE = "starts.json"
_EARLIEST = "earliest"
_CHECKED = "failondataloss"


@dataclass(frozen=True, slots=True)
class _Note:
    queries: Sequence[str] = ()
    """Those that begin there."""
    starts: Positions = field(default_factory=dict)


def starts_now(inputs: Sequence[TopicInput], brokers: str) -> Positions:
    """The offsets at which inputs begin now. A topic is left out that begins at its first record, or is read from several starts.

    StreamError; WorldError, PeerError.
    """
    by_topic: dict[str, dict[str, TopicInput]] = {}
    for given in inputs:
        by_topic.setdefault(given.topic, {})[given.start] = given
    found: dict[str, dict[str, int]] = {}
    for topic, by_start in by_topic.items():
        if len(by_start) > 1 or _EARLIEST in by_start:
            continue
        (given,) = by_start.values()
        checked = {name: value for name, value in given.options.items() if name.lower() == _CHECKED}
        try:
            options = parse_options({BOOTSTRAP: brokers, "subscribe": topic, "startingOffsets": given.start, **checked}, OptionScope.STREAM)
            with ClusterLog(brokers, "moldau-stream", isolation_level=READ_COMMITTED) as source:
                offsets = StreamPlanner(options, source).initial().offsets
        except (OptionError, DataLossError) as error:
            raise StreamError(f"topic {topic}: a query cannot begin at {given.start}: {error}") from error
        found[topic] = {str(partition.partition): offset for partition, offset in offsets.items()}
    return found


def noted_starts(directory: str, checkpoints: Mapping[str, Checkpoint], now: Callable[[Sequence[str]], Positions]) -> Positions:
    """Where queries begin that have no batch yet, by the checkpoints of all: as it was noted, if any query of the note has planned its
    first, else where these queries do `now`. CheckpointError, and errors of `now`."""
    path = os.path.join(directory, FILE)
    try:
        beginning = [name for name, each in checkpoints.items() if each.committed() is None]
        note = _read(path)
        if set(beginning).isdisjoint(note.queries) or not any(
            checkpoints[name].newest() is not None for name in note.queries if name in checkpoints
        ):
            note = _Note()
    except (OSError, ValueError, TypeError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    if new := [name for name in beginning if name not in note.queries]:
        note = _Note([*note.queries, *new], {**now(new), **note.starts})
    try:
        if not note.starts:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
        elif new:
            write_synced(path, json.dumps(asdict(note), sort_keys=True))
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be written: {error}") from error
    return note.starts


def _read(path: str) -> _Note:
    try:
        with open(path, encoding="utf-8") as file:
            return _Note(**json.load(file))
    except FileNotFoundError:
        return _Note()
