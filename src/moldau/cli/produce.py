"""``moldau produce``: send the lines of a file to a topic, over librdkafka."""

import os
import re
import stat
import sys
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO, cast

import click

from moldau.cli.input_records import BadLine, Input, read_csv, read_json, read_lines
from moldau.cli.interruptions import Interruptions
from moldau.cli.options import NAME, SECONDS, TEXT, TOPIC, ExistingPath, bootstrap_option, config_option, open_cluster
from moldau.cli.output import counted, say
from moldau.model.errors import ErrorCode
from moldau.model.extras import require

if TYPE_CHECKING:
    from moldau.cli.sending import Sender
    from moldau.client.cluster import Cluster

INTERVAL_S = 0.2


class ProgressLine:
    """Shown on standard error at most five times a second. `total_bytes` 0 means that the size of the input is not known."""

    def __init__(self, verb: str, total_bytes: int = 0) -> None:
        self._verb = verb
        self._total_bytes = total_bytes
        self._terminal = sys.stderr.isatty()
        self._start = time.monotonic()
        self._next = self._start + INTERVAL_S
        self._shown = False

    def update(self, count: int, bytes_done: int = 0) -> None:
        """`count` so far, after `bytes_done` of the input."""
        if not self._terminal:
            return
        now = time.monotonic()
        if now < self._next:
            return
        self._next = now + INTERVAL_S
        part = f"  {100 * bytes_done // self._total_bytes} %" if self._total_bytes else ""
        rate = count / (now - self._start)
        print(f"\r{self._verb} {count:,}  {rate:,.0f}/s{part}\033[K", end="", file=sys.stderr, flush=True)
        self._shown = True

    def clear(self) -> None:
        """Take the line away again."""
        if self._shown:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self._shown = False


CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
BATCH_BYTES_MAX = 1_000_000
"""librdkafka's `batch.size` where it is not set."""
RECORDS_PER_LOOK = 256
"""How often the progress line is looked at, in records."""


def _pattern(ctx: click.Context, parameter: click.Parameter, value: str | None) -> re.Pattern[bytes] | None:
    try:
        return None if value is None else re.compile(value.encode())
    except re.error as error:
        raise click.BadParameter(f"{value!r} is no regular expression: {error}", ctx, parameter) from error


@click.command("produce")
@click.argument("topic", type=TOPIC)
@click.argument("file", type=ExistingPath(dir_okay=False, allow_dash=True), default="-")
@click.option(
    "-f",
    "--format",
    "format_",
    type=click.Choice(["lines", "json", "csv"]),
    default="lines",
    show_default=True,
    help="lines: the value is the line. json: the line, checked to be JSON. csv: the row as a JSON object, names from the first row.",
)
@click.option("-k", "--key-field", metavar="NAME", help="json, csv: the field whose value is the key; json: a.b within an object.")
@click.option("-K", "--key-separator", metavar="TEXT", type=TEXT, help=r"lines: the key is what stands before this; \t is a tab.")
@click.option(
    "--key-pattern",
    metavar="REGEX",
    callback=_pattern,
    help="lines: the key is what this finds first, or its first group; the whole line stays the value.",
)
@click.option("--columns", metavar="A,B,...", help="csv: names of the columns, for a file without a row of names.")
@click.option("--delimiter", metavar="CHAR", help="csv: what separates the fields.  [default: ,]")
@config_option("-H", "--header", "headers", help_="A header for every record; may be repeated.")
@click.option("-p", "--partition", type=click.IntRange(min=0), help="Send everything there.  [default: by key, like Kafka's own clients]")
@click.option("-z", "--compression", type=click.Choice(CODECS), default="none", show_default=True, help="Codec of the batches.")
@click.option("--acks", type=click.Choice(["0", "1", "all"]), help="Who has to have a record before it counts as sent.  [default: all]")
@click.option("--idempotent/--no-idempotent", default=None, help="Let repeated sends leave one copy.  [default: on with --acks all]")
@click.option(
    "--transactional-id", metavar="ID", type=NAME, help="Send all of it in one transaction, or nothing: none of it is seen before."
)
@click.option(
    "--on-error",
    type=click.Choice(["stop", "skip"]),
    default="stop",
    show_default=True,
    help="At a line that cannot be read or is not delivered: stop reading, or count it and continue.",
)
@click.option("--timeout", metavar="SECONDS", type=SECONDS, default=60.0, show_default=True, help="For one delivery.")
@bootstrap_option
def produce(
    topic: str,
    file: str,
    format_: str,
    key_field: str | None,
    key_separator: str | None,
    key_pattern: re.Pattern[bytes] | None,
    columns: str | None,
    delimiter: str | None,
    headers: dict[str, str],
    partition: int | None,
    compression: str,
    acks: str | None,
    idempotent: bool | None,
    transactional_id: str | None,
    on_error: str,
    timeout: float,
    bootstrap: str,
) -> None:
    """Send FILE, or standard input, to TOPIC: one record per line.

    Every line that cannot be read is reported as FILE:LINE: reason. Exit code 0: everything read was delivered (with --on-error skip, lines
    skipped do not count). Exit code 1: stopped, or some deliveries failed. Exit code 130: Ctrl-C or SIGTERM. The last line has how many
    were sent, however it ends.

    \b
    moldau produce flights flights.csv --format csv --key-field tailnum
    journalctl -f -o json | moldau produce logs --format json --key-field _SYSTEMD_UNIT
    printf 'a:1\\nb:2\\n' | moldau produce pairs --key-separator :
    moldau produce access access.log --key-pattern '^[0-9.]+'
    """
    _check_combinations(format_, key_field, key_separator, columns, delimiter)
    if key_pattern is not None and (format_ != "lines" or key_separator is not None):
        raise click.UsageError("--key-pattern is for --format lines, without --key-separator")
    if transactional_id is not None and not _idempotence(acks, idempotent):
        raise click.UsageError("--transactional-id needs --acks all, and idempotence")
    require("client", "moldau produce")
    settings: dict[str, str | int | bool] = {
        "compression.type": compression,
        "acks": acks or "all",
        "enable.idempotence": _idempotence(acks, idempotent),
    }
    with open_cluster(bootstrap, timeout) as cluster:
        _check_topic(cluster, topic, partition)
        settings["batch.size"] = _batch_bytes_max(cluster, topic)
    from moldau.cli.sending import Sender

    sender = Sender(bootstrap, topic, settings, headers=headers, partition=partition, timeout_s=timeout, transactional_id=transactional_id)
    with click.open_file(file, "rb") as opened:
        source = cast("BinaryIO", opened)
        if key_pattern is not None:
            records = read_lines(source, key_pattern=key_pattern)
        else:
            records = _reader(source, format_, key_field, key_separator, columns, delimiter)
        with Interruptions():
            _send_all(records, sender, source, "stdin" if file == "-" else file, skip=on_error == "skip")


def _send_all(records: Iterator[Input], sender: "Sender", source: BinaryIO, name: str, *, skip: bool) -> None:
    """Send until the end, the first bad line or the first failed delivery, then print the totals."""
    progress = ProgressLine("sent", _size(source))

    def report(text: str) -> None:
        progress.clear()
        say(text, err=True)

    sender.report = report
    bad = 0
    stopped, interrupted = "", False
    try:
        for number, record in enumerate(records):
            if isinstance(record, BadLine):
                progress.clear()
                click.echo(f"{name}:{record.line}: {record.reason}", err=True)
                bad += 1
                if not skip:
                    stopped = "bad line"
                    break
                continue
            sender.send(record)
            if sender.failed and not skip:
                stopped = "failed delivery"
                break
            if not number % RECORDS_PER_LOOK:
                progress.update(sender.accepted, _position(source))
    except KeyboardInterrupt:
        interrupted = True
    try:
        sender.finish()
    except KeyboardInterrupt:
        interrupted = True
        sender.give_up()
    progress.clear()
    for failure in sender.failures():
        click.echo(failure, err=True)
    for text in sender.too_large.lines(name):
        say(text, err=True)
    whole = not (stopped or interrupted or sender.failed)
    sender.end_transaction(commit=whole)
    click.echo(_summary(sender, bad, stopped=stopped, undone=sender.transactional and not whole), err=True)
    if interrupted:
        raise KeyboardInterrupt
    if stopped or sender.failed:
        click.get_current_context().exit(1)


def _summary(sender: "Sender", bad: int, *, stopped: str, undone: bool) -> str:
    parts = [f"{counted(sender.delivered, 'record')} sent{' and undone' if undone else ''}"]
    if sender.failed:
        parts.append(f"{sender.failed:,} failed")
    if stopped:
        parts.append(f"stopped at the first {stopped}")
    elif bad:
        parts.append(f"{counted(bad, 'bad line')} skipped")
    return ", ".join(parts)


def _reader(
    source: BinaryIO, format_: str, key_field: str | None, key_separator: str | None, columns: str | None, delimiter: str | None
) -> Iterator[Input]:
    match format_:
        case "json":
            return read_json(source, key_field=key_field)
        case "csv":
            names = None if columns is None else [name.strip() for name in columns.split(",")]
            return read_csv(source, key_field=key_field, columns=names, delimiter=_unescape(delimiter or ","))
        case _:
            return read_lines(source, key_separator=None if key_separator is None else _unescape(key_separator).encode())


def _check_combinations(format_: str, key_field: str | None, key_separator: str | None, columns: str | None, delimiter: str | None) -> None:
    """Options that mean nothing with the format are slips, not wishes."""
    if key_field is not None and format_ == "lines":
        raise click.UsageError("--key-field needs --format json or csv; lines have --key-separator")
    if key_separator is not None and format_ != "lines":
        raise click.UsageError("--key-separator is for --format lines; json and csv have --key-field")
    if key_separator == "":
        raise click.BadParameter("must not be empty", param_hint="--key-separator")
    if (columns is not None or delimiter is not None) and format_ != "csv":
        raise click.UsageError("--columns and --delimiter are for --format csv")
    if delimiter is not None and len(_unescape(delimiter)) != 1:
        raise click.BadParameter(f"{delimiter!r} is not one character", param_hint="--delimiter")
    if columns is not None and key_field is not None and key_field not in [name.strip() for name in columns.split(",")]:
        raise click.BadParameter(f"no column {key_field!r} among {columns}", param_hint="--key-field")


def _idempotence(acks: str | None, idempotent: bool | None) -> bool:
    if idempotent and acks in ("0", "1"):
        raise click.UsageError(f"--idempotent needs --acks all, not {acks}")
    return acks in (None, "all") if idempotent is None else idempotent


def _check_topic(cluster: "Cluster", topic: str, partition: int | None) -> None:
    """Request the topic's metadata, which creates it where brokers may, and print that. librdkafka would wait long for it."""
    from moldau.client.errors import failure

    found = cluster.metadata([topic]).topics.get(topic)
    missing = found is None or found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if missing:
        found = cluster.metadata([topic], create_missing=True).topics.get(topic)
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error
    if error not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
        raise failure(error, f"topic {topic}")
    count = 0 if found is None else len(found.partitions)
    if missing:  # Apache Kafka's brokers return the partitions of a new topic a moment later
        say(f"created topic {topic}" + (f" with {counted(count, 'partition')}" if count else ""), err=True)
    if partition is not None and 0 < count <= partition:
        known = f"topic {topic} has partitions 0 to {count - 1}, not {partition}"
        raise click.BadParameter(known, param_hint="--partition")


def _batch_bytes_max(cluster: "Cluster", topic: str) -> int:
    """As large as batches may be without being refused: librdkafka does not cut one that was."""
    from moldau.cli.sending import topic_limit

    found = topic_limit(cluster, topic, "max.message.bytes")
    return BATCH_BYTES_MAX if found is None or found.value is None else max(1, min(int(found.value), BATCH_BYTES_MAX))


def _unescape(text: str) -> str:
    return text.replace("\\t", "\t")


def _size(source: BinaryIO) -> int:
    """Bytes of a regular file, 0 for a pipe or terminal."""
    try:
        status = os.fstat(source.fileno())
    except (OSError, ValueError):
        return 0
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _position(source: BinaryIO) -> int:
    return source.tell() if source.seekable() and sys.stderr.isatty() else 0
