"""``moldau consume``: print the records of a topic.

Reads with our own raw client, by assignment: nothing to install beyond Moldau itself. With `--group` it begins where a group's committed
offsets are, and commits what it has printed, without being a member.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, BinaryIO

import click

from moldau.cli.group_commits import GroupCommitter
from moldau.cli.interruptions import Interruptions
from moldau.cli.offsets import StartPoint, find_offsets, parse_start
from moldau.cli.options import NAME, TEXT, bootstrap_option, open_cluster, timeout_option
from moldau.cli.output import abandon_stdout
from moldau.cli.output_records import Formatter, TemplateError, make_formatter
from moldau.model.errors import ErrorCode
from moldau.model.identity import Offset, TopicPartition

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster
    from moldau.client.partition_requests import Fetched
    from moldau.protocol.records.batch import Record

DECOMPRESSED_BYTES_MAX = 256 * 1024 * 1024
"""A batch that would grow beyond this is refused, so that a small one cannot fill the memory."""


@click.command("consume")
@click.argument("topic", type=TEXT)
@click.option(
    "--from",
    "start",
    metavar="POINT",
    default="beginning",
    show_default=True,
    help="beginning, end, an offset, -N for the last N of each partition, an ISO time (UTC unless it says otherwise), "
    "or @ and milliseconds since 1970.",
)
@click.option("-n", "--max", "limit", type=click.IntRange(min=0), metavar="N", help="Stop after N records.")
@click.option("--until-end", is_flag=True, help="Stop at what is the end of the partitions now, instead of waiting for more.")
@click.option("-p", "--partition", "partitions", type=click.IntRange(min=0), multiple=True, help="Only this one; may be repeated.")
@click.option(
    "-f",
    "--format",
    "format_",
    type=TEXT,
    default="value",
    show_default=True,
    metavar="FORMAT",
    help="value, json (one object per line), or a template of %t topic, %p partition, %o offset, %T timestamp, %k key, %s value, "
    "%h headers, %K and %S sizes of key and value, %% and \\n \\t.",
)
@click.option(
    "-g",
    "--group",
    metavar="GROUP",
    type=NAME,
    help="Begin at the group's offsets (where it has none: --from), and commit what was printed.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="read_committed: leave out aborted transactions, and wait for open ones.",
)
@bootstrap_option
@timeout_option(30.0)
def consume(
    topic: str,
    start: str,
    limit: int | None,
    until_end: bool,
    partitions: tuple[int, ...],
    format_: str,
    group: str | None,
    isolation_level: str,
    bootstrap: str,
    timeout: float,
) -> None:
    """Print the records of TOPIC, from the beginning and then as they come, until Ctrl-C or SIGTERM.

    Order is kept within a partition. A missing key or value (a tombstone) is printed as null. In JSON, bytes that are not UTF-8 are an
    object {"base64": "..."}. Into a file or pipe values go byte for byte; at a terminal control characters are escaped. With --group
    what was printed is committed; a group that has members commits itself, and is refused.

    \b
    moldau consume flights --until-end --format json | head -3
    moldau consume flights --from 2013-06-01 --max 10 --format '%p:%o %k %s'
    """
    try:
        point = parse_start(start)
        formatter = make_formatter(format_, terminal=sys.stdout.isatty())
    except TemplateError as error:
        raise click.BadParameter(str(error), param_hint="--format") from error
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--from") from error
    with Interruptions() as interruptions, open_cluster(bootstrap, timeout) as cluster:
        wanted = _choose(cluster, topic, partitions)
        committer = None if group is None else GroupCommitter(cluster, group)
        start_at = {} if committer is None else committer.offsets(wanted)
        reader = _Reader(cluster, wanted, point, start_at, until_end=until_end, committed_only=isolation_level == "read_committed")
        try:
            _print_records(reader, formatter, limit, sys.stdout.buffer, committer, interruptions)
        except KeyboardInterrupt:
            return
        except BrokenPipeError:
            abandon_stdout()
        finally:
            if committer is not None:
                committer.finish()


class _Reader:
    """Reads partitions from a point on, some at a time."""

    def __init__(
        self,
        cluster: "Cluster",
        partitions: Sequence[TopicPartition],
        point: StartPoint,
        start_at: Mapping[TopicPartition, Offset],
        *,
        until_end: bool,
        committed_only: bool,
    ) -> None:
        """Where `start_at` says nothing, the point counts."""
        from moldau.client.partition_requests import LATEST, READ_COMMITTED, READ_UNCOMMITTED, FetchLimits

        self._cluster = cluster
        level = READ_COMMITTED if committed_only else READ_UNCOMMITTED
        self._limits = FetchLimits(isolation_level=level)
        self.positions = {**find_offsets(cluster, point, [where for where in partitions if where not in start_at]), **start_at}
        self.ends: dict[TopicPartition, Offset] = {}
        self._finished: dict[TopicPartition, Offset] = {}
        if until_end:
            ends = cluster.list_offsets(dict.fromkeys(partitions, LATEST), isolation_level=level)
            self.ends = {where: found.offset for where, found in ends.items()}
            self._check_ends()
            self._drop_finished()

    def chunks(self) -> Iterator[Iterator[tuple[TopicPartition, "Record"]]]:
        """Records as they come, one fetch after the other; with `until_end` up to the end."""
        while self.positions:
            for where, fetched in self._fetch().items():
                yield self._records(where, fetched)
            self._drop_finished()

    def _fetch(self) -> "dict[TopicPartition, Fetched]":
        """One fetch. Where retention has overtaken us, go on at the new beginning and say so."""
        from moldau.client.errors import RequestFailedError

        try:
            fetched = self._cluster.fetch_many(self.positions, self._limits)
        except RequestFailedError as error:
            if error.code is not ErrorCode.OFFSET_OUT_OF_RANGE or not isinstance(error.subject, TopicPartition):
                raise
            self._catch_up(error.subject)
            return {}
        # The next fetch begins behind the partitions that gave something in this one, so that none is starved by the byte limit.
        for where in [where for where, got in fetched.items() if got.records]:
            self.positions[where] = self.positions.pop(where)
        return fetched

    def _catch_up(self, where: TopicPartition) -> None:
        from moldau.client.partition_requests import EARLIEST, LATEST

        asked = self.positions[where]
        first = self._cluster.list_offsets({where: EARLIEST})[where].offset
        end = self._cluster.list_offsets({where: LATEST})[where].offset
        if asked > end:
            raise _beyond_end(where, asked, first, end)
        click.echo(f"partition {where}: records before offset {first} are gone, going on there (from {asked})", err=True)
        self.positions[where] = first

    def _check_ends(self) -> None:
        """With `until_end` a position beyond the end would be finished at once, and look like an empty partition."""
        from moldau.client.partition_requests import EARLIEST

        for where, end in self.ends.items():
            if self.positions[where] > end:
                first = self._cluster.list_offsets({where: EARLIEST})[where].offset
                raise _beyond_end(where, self.positions[where], first, end)

    def _records(self, where: TopicPartition, fetched: "Fetched") -> Iterator[tuple[TopicPartition, "Record"]]:
        from moldau.client.visible import Visible
        from moldau.protocol.records.batch import batches, iterate

        end, visible = self.ends.get(where), Visible(fetched.aborted)
        for header, batch in batches(fetched.records):
            if visible.shows(header, batch):
                for record in iterate(batch, max_decompressed_bytes=DECOMPRESSED_BYTES_MAX):
                    if record.offset >= self.positions[where] and (end is None or record.offset < end):
                        yield where, record
            self.positions[where] = Offset(header.last_offset + 1)

    def reached(self) -> dict[TopicPartition, Offset]:
        """How far each partition is, those that are read to their end among them; none beyond its end."""
        return self._finished | {where: min(offset, self.ends.get(where, offset)) for where, offset in self.positions.items()}

    def _drop_finished(self) -> None:
        for where, end in self.ends.items():
            if self.positions.get(where, -1) >= end:
                del self.positions[where]
                self._finished[where] = end


def _beyond_end(where: TopicPartition, asked: int, first: int, end: int) -> click.ClickException:
    return click.ClickException(f"partition {where} has offsets {first} to {end}, not {asked}")


def _choose(cluster: "Cluster", topic: str, partitions: tuple[int, ...]) -> list[TopicPartition]:
    known = [found.partition for found in cluster.topic(topic).partitions]
    for partition in partitions:
        if partition not in known:
            raise click.BadParameter(f"topic {topic} has partitions 0 to {len(known) - 1}, not {partition}", param_hint="--partition")
    return [TopicPartition(topic, partition) for partition in known if not partitions or partition in partitions]


def _print_records(
    reader: _Reader,
    formatter: Formatter,
    limit: int | None,
    output: BinaryIO,
    committer: "GroupCommitter | None",
    interruptions: Interruptions,
) -> None:
    """Write records until the end, or `limit` of them; what was written is flushed after every partition's share of a fetch.

    Only what was flushed is committed. Where there was nothing to write, the group begins there the next time all the same.
    """
    left = limit
    if left == 0:
        return
    for chunk in reader.chunks():
        with interruptions.held():
            last: dict[TopicPartition, Offset] = {}
            for where, record in chunk:
                output.write(formatter(where, record))
                if left is not None:
                    left -= 1
                    if left == 0:
                        last[where] = Offset(record.offset + 1)
                        break
            output.flush()
            if committer is not None:
                committer.done({**reader.reached(), **last})
        if left == 0:
            return
    if committer is not None:
        committer.done(reader.reached())
