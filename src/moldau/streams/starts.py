"""Where inputs begin that do not begin at their first record: found out when the job starts, and noted until each query has a batch.

::

    DIRECTORY/starts.json     {"flights": {"0": 23, "1": 17}}

Spark asks at each start where a query begins that has no batch yet, and "latest" is further on then: a first batch that was planned, and
was to be run again, would leave out what it had read. All queries of a job begin at the same records.
"""

import contextlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Sequence

from moldau.client.partition_requests import READ_COMMITTED
from moldau.lake.reading.cluster_log import ClusterLog
from moldau.lake.reading.options import BOOTSTRAP, OptionScope, parse_options
from moldau.lake.reading.planning import StreamPlanner
from moldau.streams.checkpoints import Checkpoint, Positions
from moldau.streams.errors import CheckpointError
from moldau.streams.inputs import TopicInput

FILE = "starts.json"
_EARLIEST = "earliest"
_CHECKED = "failondataloss"


def starts_now(inputs: Sequence[TopicInput], brokers: str) -> Positions:
    """The offsets at which inputs begin now. A topic is left out that begins at its first record, or is read from several starts.

    OptionError, DataLossError; WorldError, PeerError.
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
        options = parse_options({BOOTSTRAP: brokers, "subscribe": topic, "startingOffsets": given.start, **checked}, OptionScope.STREAM)
        with ClusterLog(brokers, "moldau-stream", isolation_level=READ_COMMITTED) as source:
            offsets = StreamPlanner(options, source).initial().offsets
        found[topic] = {str(partition.partition): offset for partition, offset in offsets.items()}
    return found


def noted_starts(directory: str, checkpoints: Iterable[Checkpoint], now: Callable[[], Positions]) -> Positions:
    """Where queries begin that have no batch yet: as it was noted if one of them has planned its first, else `now`. CheckpointError."""
    path = os.path.join(directory, FILE)
    beginning = [each for each in checkpoints if each.committed() is None]
    try:
        if not beginning:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
            return {}
        known = _read(path) if any(each.newest() is not None for each in beginning) else None
        if known is not None:
            return known
        if found := now():
            _write(path, found)
        return found
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path}: cannot be read or written: {error}") from error


def _read(path: str) -> Positions | None:
    try:
        with open(path, encoding="utf-8") as file:
            found: Positions = json.load(file)
            return found
    except FileNotFoundError:
        return None


def _write(path: str, starts: Positions) -> None:
    directory = os.path.dirname(path)
    os.makedirs(directory, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(dir=directory, prefix=f".{FILE}.")
    with open(descriptor, "w", encoding="utf-8") as file:
        json.dump(starts, file, sort_keys=True)
        file.flush()
        os.fsync(file.fileno())
    os.replace(partial, path)
