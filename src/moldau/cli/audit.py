"""``moldau audit``: count a cluster as a tier, compare the tiers, and say what is missing or doubled (missions H2, H3)."""

import logging
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from moldau.cli.options import SECONDS, TEXT, bootstrap_option, json_option, open_cluster, registry_option, timeout_option

if TYPE_CHECKING:
    from moldau.audit.reconcile import Rules
    from moldau.audit.tiers import TierCounts
    from moldau.audit.verdicts import Report

F = TypeVar("F", bound=Callable[..., Any])

LOSS, INCOMPLETE = 2, 3
"""Exit codes: something is missing or doubled; not everything is complete yet, where that was asked for."""
_TIER = re.compile(r"[A-Za-z0-9._-]{1,200}")


@click.group("audit")
def audit() -> None:
    """Prove that nothing is missing or doubled, and name the host at fault when something is."""


def _pattern(ctx: click.Context, parameter: click.Parameter, value: str | None) -> "re.Pattern[str] | None":
    try:
        return None if value is None else re.compile(value)
    except re.error as error:
        raise click.BadParameter(f"{value!r} is no regular expression: {error}", ctx, parameter) from error


def _tier_name(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if not _TIER.fullmatch(value):
        raise click.BadParameter(f"{value!r}: a tier's name has letters, digits, and . _ -", ctx, parameter)
    if value == "producer":
        raise click.BadParameter("tier producer is that of the producers themselves", ctx, parameter)
    return value


@audit.command("run")
@click.option("--tier", metavar="NAME", required=True, callback=_tier_name, help="The name under which its counts are published.")
@click.option("--once", is_flag=True, help="Count up to where the logs end now, publish, and end.")
@click.option("--topics", metavar="PATTERN", callback=_pattern, help="Regular expression for whole names.  [default: all but _...]")
@click.option("--interval", type=SECONDS, default=10.0, show_default=True, metavar="SECONDS", help="Publish so often.")
@registry_option("Ask this schema registry which schemas are those of tracked events.")
@click.option("--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="warning", show_default=True)
@click.option("--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@bootstrap_option
def run(
    tier: str,
    once: bool,
    topics: "re.Pattern[str] | None",
    interval: float,
    registry: str | None,
    log_level: str,
    log_format: str,
    bootstrap: str,
) -> None:
    """Count every topic of a cluster by the headers of its events, until SIGTERM or Ctrl-C.

    Counts and the offsets that they reach up to are published in one transaction: killed at any moment and started again, it neither
    misses nor doubles. A second auditor of the same tier takes over, and the first one ends with exit code 1.
    """
    import signal

    from moldau.cli.output import counted
    from moldau.cli.server_log import set_up_logging
    from moldau.client.failures import FencedError

    try:
        from moldau.audit.auditor import Auditor, AuditorOptions
    except ImportError as error:
        raise click.ClickException(f"{error}: an auditor needs `pip install 'moldau[tracking]'`") from error
    set_up_logging(log_level, log_format)
    for handler in logging.getLogger().handlers:
        handler.addFilter(_is_no_news)
    schemas = None
    if registry is not None:
        from moldau.audit.schemas import TrackedSchemas

        try:
            schemas = TrackedSchemas(registry)
        except ValueError as error:
            raise click.BadParameter(str(error), param_hint="--registry") from error
    auditor = Auditor(bootstrap, AuditorOptions(tier, topics, interval_s=interval), is_tracked=schemas)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: auditor.stop())
    click.echo(f"auditing {bootstrap} as tier {tier}")
    try:
        auditor.run(once=once)
    except FencedError as error:
        raise click.ClickException(f"tier {tier}: another auditor of this tier has taken over, so this one ends ({error.name})") from error
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    finally:
        told = auditor.statistics()
        click.echo(f"{counted(told['published'], 'record')} counted in {counted(told['transactions'], 'transaction')}")


def _is_no_news(record: logging.LogRecord) -> bool:
    """Librdkafka says several times, in its own words, that another auditor has taken over; the command says it once."""
    return record.name != "moldau.client" or "fenced" not in record.getMessage().lower()


def _tiers(ctx: click.Context, parameter: click.Parameter, value: str | None) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(",")) if value else ()
    if len(set(names)) != len(names) or len(names) == 1 or not all(names):
        raise click.BadParameter(f"{value!r}: two or more different tiers, by commas", ctx, parameter)
    if "producer" in names[1:]:
        raise click.BadParameter(f"{value!r} is upside down: tier producer comes first", ctx, parameter)
    return names


def _graces(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """Milliseconds by tier; the empty name is for all others."""
    graces = {}
    for text in values:
        tier, _, seconds = text.rpartition("=")
        try:
            number = float(seconds)
        except ValueError:
            number = -1.0
        if not 0 <= number <= 1e9:
            raise click.BadParameter(f"{text!r} is neither SECONDS nor TIER=SECONDS", ctx, parameter)
        graces[tier] = int(number * 1000)
    return graces


def _only(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> "dict[str, re.Pattern[str]]":
    patterns = {}
    for text in values:
        tier, equals, pattern = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not TIER=PATTERN", ctx, parameter)
        found = _pattern(ctx, parameter, pattern)
        assert found is not None
        patterns[tier] = found
    return patterns


def _since(ctx: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    from moldau.cli.offsets import AtTime, parse_start

    if value is None:
        return None
    try:
        point = parse_start(value)
    except ValueError:
        point = None
    if not isinstance(point, AtTime):
        raise click.BadParameter(f"{value!r} is neither an ISO time nor @ and milliseconds since 1970", ctx, parameter)
    return point.timestamp_ms


def comparing_options(function: F) -> F:
    """What `report` and `watch` compare, and how patient they are."""
    for option in (
        click.option("--topic", "topics", type=TEXT, multiple=True, help="Only this topic; may be repeated."),
        click.option("--since", metavar="TIME", callback=_since, help="Only windows that end later: an ISO time, or @ and milliseconds."),
        click.option("--tiers", metavar="A,B,...", callback=_tiers, help="From the producers down.  [default: producer, auditors, loads]"),
        click.option(
            "--grace", "graces", multiple=True, metavar="[TIER=]SECONDS", callback=_graces,
            help="How long a tier may take to count what is new; may be repeated.  [default: 120]",
        ),
        click.option(
            "--only", multiple=True, metavar="TIER=PATTERN", callback=_only,
            help="The topics that a tier is meant to count.  [default: what an auditor says; what a load has ever loaded]",
        ),
        click.option(
            "--producer-timeout", type=SECONDS, default=300.0, show_default=True, metavar="SECONDS", envvar="MOLDAU_AUDIT_PRODUCER_TIMEOUT",
            help="After so long without a sign of life of a producer that did not close, the log stands for what it sent.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def _rules(
    topics: tuple[str, ...],
    since: int | None,
    tiers: tuple[str, ...],
    graces: dict[str, int],
    only: "dict[str, re.Pattern[str]]",
    producer_timeout: float,
) -> "Callable[[], Rules]":
    from moldau.audit.reconcile import GRACE_MS, Rules

    def now() -> Rules:
        return Rules(
            now_ms=int(time.time() * 1000),
            tiers=tiers,
            grace_ms=graces.get("", GRACE_MS),
            graces_ms=graces,
            only={tier: lambda topic, pattern=pattern: bool(pattern.fullmatch(topic)) for tier, pattern in only.items()},  # type: ignore[misc]
            producer_timeout_ms=int(producer_timeout * 1000),
            topics=set(topics) or None,
            since_ms=since,
        )

    return now


@audit.command("report")
@comparing_options
@click.option("--complete", is_flag=True, help="Exit code 3 unless everything is complete.")
@click.option("--windows", is_flag=True, help="Show every window, not only those at fault.")
@json_option
@bootstrap_option
@timeout_option(30.0)
def report(complete: bool, windows: bool, as_json: bool, bootstrap: str, timeout: float, **comparing: Any) -> None:
    """Compare the tiers by topic and ten minutes, and trace what differs to datacenter, service, host and instance.

    Exit codes: 0 nothing is missing or doubled, 1 the counts could not be had, 2 loss or duplication, 3 with --complete: not yet complete.

    \b
    moldau audit report --tiers producer,local,lake --grace lake=900
    moldau audit report --topic departures --since 2013-07-01 --json
    """
    from moldau.audit.reconcile import reconcile
    from moldau.audit.tiers import read_audit
    from moldau.cli.audit_view import as_document, print_report
    from moldau.cli.output import print_json

    rules = _rules(**comparing)
    with open_cluster(bootstrap, timeout) as cluster:
        found = read_audit(cluster)
    _check_tiers(found, rules())
    compared = reconcile(found, rules())
    _check_comparable(found, compared)
    if as_json:
        print_json(as_document(compared))
    else:
        print_report(compared, every_window=windows)
    click.get_current_context().exit(exit_code(compared, complete=complete))


def exit_code(report: "Report", *, complete: bool) -> int:
    """0, or what is wrong."""
    if report.alarming:
        return LOSS
    return INCOMPLETE if complete and not report.complete else 0


def _check_tiers(found: "TierCounts", rules: "Rules") -> None:
    """Tiers that are named have been heard of, unless they are said to be on their way."""
    if not found.records:
        return
    heard = {"producer", *found.heard_ms, *found.auditors}
    expected = set(rules.tiers) & rules.only.keys()
    for option, names in (("--tiers", rules.tiers), ("--grace", rules.graces_ms), ("--only", rules.only)):
        unknown = sorted(set(names) - heard - expected - {""})
        if unknown:
            hint = f"one that is still to come needs to be in --tiers, and --only {unknown[0]}=PATTERN for the topics that it is to count"
            there = ", ".join(sorted(heard))
            raise click.ClickException(f"{option}: tier {unknown[0]} has never published anything, only {there} have; {hint}")


def _check_comparable(found: "TierCounts", compared: "Report") -> None:
    if len(compared.tiers) < 2:
        there = f"only tier {compared.tiers[0]} has" if compared.tiers else "no tier has"
        raise click.ClickException(f"{there} published counts, so there is nothing to compare; --tiers names those that should have")
    if not found.records:
        raise click.ClickException("no tier has published counts, so there is nothing to compare")


@audit.command("watch")
@comparing_options
@click.option("--every", type=SECONDS, default=5.0, show_default=True, metavar="SECONDS", help="Look so often.")
@click.option("--until-complete", is_flag=True, help="End when everything is complete; exit code 2 at the first loss or duplication.")
@bootstrap_option
@timeout_option(30.0)
def watch(every: float, until_complete: bool, bootstrap: str, timeout: float, **comparing: Any) -> None:
    """Show how the tiers compare, again and again, until Ctrl-C or SIGTERM: a table at a terminal, elsewhere a line for each change."""
    import signal
    import threading

    from moldau.audit.reconcile import reconcile
    from moldau.audit.tiers import TierCounts, read_audit
    from moldau.cli.audit_view import watching_view

    rules, ending = _rules(**comparing), threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: ending.set())
    found = TierCounts()
    with open_cluster(bootstrap, timeout) as cluster, watching_view() as show:
        while not ending.is_set():
            compared = reconcile(read_audit(cluster, found), rules())
            show(compared)
            if until_complete and (compared.alarming or (compared.complete and compared.pairs)):
                click.get_current_context().exit(exit_code(compared, complete=True))
            ending.wait(every)
