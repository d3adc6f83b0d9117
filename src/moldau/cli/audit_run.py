"""``moldau audit run``: the auditor of a cluster."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import TYPE_CHECKING

import click

from moldau.cli.audit_comparing import auditor_tier, pattern
from moldau.cli.listening import METRICS_DEFAULT, connectable, host_port, listen_error
from moldau.cli.options import SECONDS, bootstrap_option, check_registry_url, naming_source, open_cluster, registry_option, registry_source
from moldau.model.extras import require
from moldau.model.host_port import parse_host_port

if TYPE_CHECKING:
    from moldau.audit.auditor import Auditor
    from moldau.audit.events import SchemaCheck

_TRANSACTION_LINES = ("ADDPARTS ", "ADDOFFSETS ", "TXNOFFSETS ", "ENDTXN ")
"""How librdkafka's lines about the steps of a transaction begin."""


@click.command("run")
@click.option("--tier", metavar="NAME", required=True, callback=auditor_tier, help="The name under which its counts are published.")
@click.option("--once", is_flag=True, help="Count up to where the logs end now, publish, and end.")
@click.option("--topics", metavar="PATTERN", callback=pattern, help="Regular expression for whole names.  [default: all but _...]")
@click.option("--interval", type=SECONDS, default=10.0, show_default=True, metavar="SECONDS", help="Publish so often.")
@registry_option("Ask this schema registry which schemas are those of tracked events.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="warning", show_default=True)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--metrics", metavar="[HOST:PORT]", is_flag=False, flag_value=METRICS_DEFAULT, callback=host_port,
    help=f"Serve /metrics for Prometheus, /health and /ready; without an address on {METRICS_DEFAULT}.",
)  # fmt: skip
@bootstrap_option
def run(
    tier: str,
    once: bool,
    topics: "re.Pattern[str] | None",
    interval: float,
    registry: str | None,
    log_level: str,
    log_format: str,
    metrics: str | None,
    bootstrap: str,
) -> None:
    """Count every topic of a cluster by the headers of its events, until SIGTERM or Ctrl-C.

    Counts and the offsets that they reach up to are published in one transaction: killed at any moment and started again, it neither
    misses nor doubles. A second auditor of the same tier takes over, and the first one ends with exit code 1.
    """
    import signal

    from moldau.assembly.server_log import set_up_logging
    from moldau.client.failures import FencedError

    require("tracking", "an auditor")
    from moldau.audit.auditor import Auditor, AuditorOptions

    set_up_logging(log_level, log_format)
    schemas = None
    if registry is not None:
        schemas = _schemas(registry, registry_source(click.get_current_context()))
    if once:
        with open_cluster(bootstrap):  # it reports what is wrong with the brokers after seconds, in our words
            pass
    auditor = Auditor(bootstrap, AuditorOptions(tier, topics, interval_s=interval), is_tracked=schemas)
    log_once(auditor)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: auditor.stop())
    try:
        with nullcontext() if metrics is None else _metrics_page(auditor, metrics):
            click.echo(f"auditing {bootstrap} as tier {tier}")
            auditor.run(once=once)
    except FencedError as error:
        _print_totals(auditor)
        notes = "".join(f"; {note}" for note in getattr(error, "__notes__", ()))
        taken = f"tier {tier}: another auditor of this tier has taken over, so this one ends ({error.name}{notes})"
        raise click.ClickException(taken) from error
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    _print_totals(auditor)
    if once and topics is not None and not auditor.statistics()["partitions"]:
        raise click.ClickException(f"no topic matches {topics.pattern!r}, so there was nothing to count")


def _schemas(registry: str, source: str) -> "SchemaCheck":
    """Which schemas are those of tracked events, asked of this registry."""
    from moldau.audit.schemas import TrackedSchemas
    from moldau.model.errors import MoldauError

    check_registry_url(registry, source)
    known = TrackedSchemas(registry)

    def is_tracked(schema_id: int) -> bool:
        try:
            return known(schema_id)
        except MoldauError:
            with naming_source(source):
                raise

    return is_tracked


@contextmanager
def _metrics_page(auditor: "Auditor", listen: str) -> Iterator[None]:
    """Serve the auditor's metrics while it runs. click.ClickException if the port cannot be had."""
    require("metrics", "--metrics")
    from moldau.adapters.binding import bind
    from moldau.adapters.metrics_server import MetricsServer
    from moldau.audit.metrics import auditor_families

    try:
        sockets = bind(*parse_host_port(listen))
    except OSError as error:
        raise listen_error(f"cannot serve metrics: {(error.strerror or str(error)).lower()}", error, "--metrics") from error
    host, port = parse_host_port(listen)[0], sockets[0].getsockname()[1]
    reason = "the auditor cannot count or publish, and tries again"
    server = MetricsServer(sockets, lambda: auditor_families(auditor, running=True), lambda: [reason] if auditor.interrupted else [])
    server.start()
    click.echo(f"metrics at http://{connectable(host, port)}/metrics")
    try:
        yield
    finally:
        server.stop()


def _print_totals(auditor: "Auditor") -> None:
    from moldau.cli.output import counted

    totals = auditor.statistics()
    click.echo(f"{counted(totals['published'], 'record')} counted in {counted(totals['transactions'], 'transaction')}")


def log_once(auditor: "Auditor") -> None:
    """Keep out of the log what an auditor reports itself."""
    for handler in logging.getLogger().handlers:
        handler.addFilter(partial(_is_news, auditor))


def _is_news(auditor: "Auditor", record: logging.LogRecord) -> bool:
    """Not what the auditor reports itself: librdkafka repeats a transaction that failed, and brokers that still do not answer."""
    if record.name != "moldau.client":
        return True
    text = record.getMessage()
    failed = text.startswith(_TRANSACTION_LINES) or "fenced" in text.lower()
    return not failed and not (auditor.interrupted and " is away: " in text)
