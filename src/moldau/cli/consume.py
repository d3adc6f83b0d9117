"""``moldau consume``: print the records of a topic.

Reads with our own raw client, by assignment: nothing to install beyond Moldau itself. With `--group` it begins where a group's committed
offsets are, and commits what it has printed, without being a member.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, BinaryIO

import click
from click.core import ParameterSource

from moldau.cli.interruptions import Interruptions
from moldau.cli.offsets import POINT, POINT_FORMS, AtTime, LogEnd, StartPoint, find_offsets
from moldau.cli.options import GROUP, TEXT, TIME, TIME_FORMS, TOPIC, bootstrap_option, open_cluster, registry_option, timeout_option
from moldau.cli.output import abandon_stdout, counted, say
from moldau.cli.output_records import Formatter, TemplateError, make_formatter
from moldau.model.identity import Offset, TopicPartition

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from moldau.cli.decoding import ColumnDecoder
    from moldau.cli.partition_reader import PartitionReader
    from moldau.client.cluster import Cluster

COMMIT_EVERY_S = 1.0


class GroupCommitter:
    """Commits how far a group is, now and then and at the end. click.ClickException for a group that has members."""

    def __init__(self, cluster: "Cluster", group: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        from moldau.cli.group_reset import members_of
        from moldau.client.groups import Groups

        members = members_of(cluster, group)
        if members:
            raise click.ClickException(f"{members}, which commit themselves; nothing was read")
        self._groups = Groups(cluster)
        self._group = group
        self._monotonic = monotonic
        self._committed: dict[TopicPartition, Offset] = {}
        self._done: dict[TopicPartition, Offset] = {}
        self._next_s = monotonic() + COMMIT_EVERY_S

    def offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, Offset]:
        """What the group has committed of these."""
        self._committed = {where: found.offset for where, found in self._groups.committed(self._group, partitions).items()}
        return dict(self._committed)

    def done(self, positions: Mapping[TopicPartition, Offset]) -> None:
        """Everything before these is printed."""
        self._done.update(positions)
        if self._monotonic() >= self._next_s:
            self.finish()

    def finish(self) -> None:
        """Commit what has changed, now."""
        from moldau.client.groups import GroupOffset

        changed = {where: offset for where, offset in self._done.items() if self._committed.get(where) != offset}
        self._groups.commit(self._group, {where: GroupOffset(offset) for where, offset in changed.items()})
        self._committed.update(changed)
        self._next_s = self._monotonic() + COMMIT_EVERY_S


DECODED = {"value": ("values",), "key": ("keys",), "both": ("keys", "values")}
"""Columns by what --decode names."""


@click.command("consume")
@click.argument("topic", type=TOPIC)
@click.option(
    "--from",
    "start",
    metavar="POINT",
    type=POINT,
    default="beginning",
    show_default=True,
    help=f"{POINT_FORMS}.",
)
@click.option(
    "--since",
    metavar="TIME",
    type=TIME,
    help=f"Begin at the first record of each partition that is not older than TIME: {TIME_FORMS}.",
)
@click.option(
    "--until",
    metavar="TIME",
    type=TIME,
    help="End before the first record of each partition that is not older, or at what is the end now.",
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
    type=GROUP,
    help="Begin at the group's offsets (where it has none: --from), and commit what was printed.",
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    default="read_uncommitted",
    show_default=True,
    help="read_committed: leave out aborted transactions, and wait for open ones.",
)
@registry_option("Decode values with the schemas of this registry (the variable alone: with --decode).")
@click.option(
    "--decode",
    type=click.Choice(list(DECODED)),
    help="What the registry decodes into JSON: Avro, JSON Schema and Protobuf.  [default: value]",
)
@click.option(
    "--on-error",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="At a record that cannot be decoded: end with exit code 1, or count it and continue.",
)
@click.option("--skip-damaged", is_flag=True, help="Skip damaged batches and continue, instead of ending with exit code 1.")
@bootstrap_option
@timeout_option(30.0)
def consume(
    topic: str,
    start: StartPoint,
    since: int | None,
    until: int | None,
    limit: int | None,
    until_end: bool,
    partitions: tuple[int, ...],
    format_: str,
    group: str | None,
    isolation_level: str,
    registry: str | None,
    decode: str | None,
    on_error: str,
    skip_damaged: bool,
    bootstrap: str,
    timeout: float,
) -> None:
    """Print the records of TOPIC, from the beginning and then as they come, until Ctrl-C or SIGTERM.

    Order is kept within a partition. A missing key or value (a tombstone) is printed as null. In JSON, bytes that are not UTF-8 are an
    object {"base64": "..."}. Into a file or pipe values go byte for byte; at a terminal control characters are escaped. With --group
    what was printed is committed; a group that has members commits itself, and is refused.

    \b
    moldau consume orders --registry http://127.0.0.1:8081 --since 1h
    moldau consume flights --until-end --format json | head -3
    moldau consume flights --from 2013-06-01 --max 10 --format '%p:%o %k %s'
    """
    try:
        decoded = _decoded(registry, decode)
        formatter = make_formatter(format_, terminal=sys.stdout.isatty(), decoded=decoded)
    except TemplateError as error:
        raise click.BadParameter(str(error), param_hint="--format") from error
    point = _start(start, since)
    if group is None:  # whose offsets may well be before the end
        _check_span(point, until, "--from" if since is None else "--since")
    with (
        Interruptions() as interruptions,
        open_cluster(bootstrap, timeout) as cluster,
        _column_decoder(registry, decoded, timeout, skip=on_error == "skip") as decoder,
    ):
        from moldau.cli.partition_reader import PartitionReader
        from moldau.client.partition_requests import READ_COMMITTED, READ_UNCOMMITTED

        wanted = _choose(cluster, topic, partitions)
        committed_only = isolation_level == "read_committed"
        committer = None if group is None else GroupCommitter(cluster, group)
        committed = {} if committer is None else committer.offsets(wanted)
        level = READ_COMMITTED if committed_only else READ_UNCOMMITTED
        begins = find_offsets(cluster, point, [where for where in wanted if where not in committed], isolation_level=level)
        positions = {**begins, **committed}
        ends = {}
        if until is not None or until_end:
            ends = find_offsets(cluster, LogEnd() if until is None else AtTime(until), wanted, isolation_level=level)
        if until is not None:  # which may well be before the beginning
            ends = {where: max(end, positions[where]) for where, end in ends.items()}
        values_only = format_ == "value" and limit is None and decoder is None
        reader = PartitionReader(
            cluster, positions, ends, committed_only=committed_only, skip_damaged=skip_damaged, values_only=values_only
        )
        try:
            _print_records(reader, formatter, limit, sys.stdout.buffer, committer, interruptions, decoder)
        except KeyboardInterrupt:
            return
        except BrokenPipeError:
            abandon_stdout()
        finally:
            if committer is not None:
                committer.finish()
            if reader.damaged:
                say(f"{counted(reader.damaged, 'damaged place')} skipped", err=True)
            if decoder is not None and decoder.skipped:
                say(f"{counted(decoder.skipped, 'record')} not decoded, skipped", err=True)


def _decoded(registry: str | None, decode: str | None) -> "Collection[str]":
    """Columns to decode. A variable that was set for other commands does not make this one decode."""
    context = click.get_current_context()
    if decode is None and context.get_parameter_source("registry") is not ParameterSource.COMMANDLINE:
        return ()
    if registry is None:
        raise click.UsageError("--decode needs --registry URL, or the variable MOLDAU_REGISTRY")
    return DECODED[decode or "value"]


@contextmanager
def _column_decoder(registry: str | None, decoded: "Collection[str]", timeout: float, *, skip: bool) -> "Iterator[ColumnDecoder | None]":
    if not decoded or registry is None:
        yield None
        return
    from moldau.cli.decoding import ColumnDecoder, ValueDecoder
    from moldau.cli.options import check_registry_url, naming_source, registry_source
    from moldau.registry.client import RegistryClient

    source = registry_source(click.get_current_context())
    check_registry_url(registry, source)
    with naming_source(source), RegistryClient(registry, timeout_s=timeout) as client:
        yield ColumnDecoder(ValueDecoder(client), decoded, skip=skip)


def _start(start: StartPoint, since: int | None) -> StartPoint:
    """Where to begin."""
    if since is None:
        return start
    if click.get_current_context().get_parameter_source("start") is not ParameterSource.DEFAULT:
        raise click.UsageError("--from and --since both set the start: give one of them")
    return AtTime(since)


def _check_span(point: StartPoint, until: int | None, begin_option: str) -> None:
    """click.UsageError for an end that is before the beginning. Times to come are none: records carry whatever time producers give them."""
    if until is not None and isinstance(point, AtTime) and until < point.timestamp_ms:
        raise click.UsageError(f"--until is before {begin_option}: there is nothing between them")


def _choose(cluster: "Cluster", topic: str, partitions: tuple[int, ...]) -> list[TopicPartition]:
    known = [found.partition for found in cluster.topic(topic).partitions]
    for partition in partitions:
        if partition not in known:
            raise click.BadParameter(f"topic {topic} has partitions 0 to {len(known) - 1}, not {partition}", param_hint="--partition")
    return [TopicPartition(topic, partition) for partition in known if not partitions or partition in partitions]


def _print_records(
    reader: "PartitionReader",
    formatter: Formatter,
    limit: int | None,
    output: BinaryIO,
    committer: "GroupCommitter | None",
    interruptions: Interruptions,
    decoder: "ColumnDecoder | None" = None,
) -> None:
    """Write records until the end, or `limit` of them; what was written is flushed after every partition's share of a fetch.

    Only what was flushed is committed. Where there was nothing to write, the group begins there the next time all the same.
    """
    left = limit
    if left == 0:
        return
    for chunk in reader.chunks():
        failure: click.ClickException | None = None
        with interruptions.held():
            last: dict[TopicPartition, Offset] = {}
            for where, columns in chunk:
                begun = columns.offsets[:1]
                if decoder is not None:
                    failure = decoder.apply(where, columns, left)
                if left is not None:
                    columns.cut(left, len(columns))
                    left -= len(columns)
                if len(columns.values):
                    output.write(formatter(where, columns))
                if left == 0 or failure is not None:
                    last[where] = Offset(columns.offsets[-1] + 1 if columns.offsets else begun[0])
                    break
            output.flush()
            if committer is not None:
                committer.done({**reader.reached(), **last})
        if failure is not None:
            raise failure
        if left == 0:
            return
    if committer is not None:
        committer.done(reader.reached())
