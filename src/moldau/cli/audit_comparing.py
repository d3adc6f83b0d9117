"""What ``moldau audit report`` and ``watch`` compare, how patient they are, and how they end."""

import re
from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, TypeVar

import click

from moldau.cli.exit_codes import DONE, MISSING_OR_DOUBLED, UNDECIDED
from moldau.cli.options import SECONDS, TIME, TIME_FORMS, TOPIC, parse_duration_ms
from moldau.model.near_names import did_you_mean
from moldau.tracking.audit_record import PRODUCER_TIER, TIER_NAME

if TYPE_CHECKING:
    from moldau.audit.rules import Rules
    from moldau.audit.tree import TierTree
    from moldau.audit.verdicts import Report

F = TypeVar("F", bound=Callable[..., Any])


def pattern(ctx: click.Context, parameter: click.Parameter, value: str | None) -> "re.Pattern[str] | None":
    """Of an option: a regular expression."""
    try:
        return None if value is None else re.compile(value)
    except re.error as error:
        raise click.BadParameter(f"{value!r} is no regular expression: {error}", ctx, parameter) from error


def auditor_tier(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """Of an option: the tier of an auditor."""
    if value is None:
        return None
    if not TIER_NAME.fullmatch(value):
        raise click.BadParameter(f"{value!r}: a tier's name has letters, digits, and . _ -", ctx, parameter)
    if value == PRODUCER_TIER:
        raise click.BadParameter("tier producer is that of the producers themselves", ctx, parameter)
    return value


def _tiers(ctx: click.Context, parameter: click.Parameter, value: str | None) -> "TierTree":
    from moldau.audit.tree import TierTree

    names = tuple(name.strip() for name in value.split(",")) if value else ()
    if len(set(names)) != len(names) or len(names) == 1 or not all(names):
        raise click.BadParameter(f"{value!r}: two or more different tiers, by commas", ctx, parameter)
    if "producer" in names[1:]:
        raise click.BadParameter(f"{value!r} is upside down: tier producer comes first", ctx, parameter)
    return TierTree.chain(names)


def _tree(ctx: click.Context, parameter: click.Parameter, path: str | None) -> "TierTree | None":
    from moldau.audit.tree import TreeError, read_tree

    if path is None:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return read_tree(file.read())
    except OSError as error:
        raise click.BadParameter(f"{path}: {(error.strerror or str(error)).lower()}", ctx, parameter) from error
    except UnicodeDecodeError as error:
        raise click.BadParameter(f"{path}: not UTF-8", ctx, parameter) from error
    except TreeError as error:
        raise click.BadParameter(f"{path}: {error}", ctx, parameter) from error


def _graces(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    """Milliseconds by tier; the empty name is for all others."""
    graces = {}
    for text in values:
        tier, _, seconds = text.rpartition("=")
        try:
            graces[tier] = round(parse_duration_ms(seconds))
        except ValueError as error:
            raise click.BadParameter(f"{text!r} is neither SECONDS nor TIER=SECONDS: {error}", ctx, parameter) from error
    return graces


def _only(ctx: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> "dict[str, re.Pattern[str]]":
    patterns = {}
    for text in values:
        tier, equals, expression = text.partition("=")
        if not equals:
            raise click.BadParameter(f"{text!r} is not TIER=PATTERN", ctx, parameter)
        found = pattern(ctx, parameter, expression)
        assert found is not None
        patterns[tier] = found
    return patterns


def comparing_options(function: F) -> F:
    """What `report` and `watch` compare, and how patient they are."""
    for option in (
        click.option("--topic", "topics", type=TOPIC, multiple=True, help="Only this topic; may be repeated."),
        click.option("--since", metavar="TIME", type=TIME, help=f"Only windows that end later than TIME: {TIME_FORMS}."),
        click.option("--tiers", metavar="A,B,...", callback=_tiers, help="From the producers down.  [default: producer, auditors, loads]"),
        click.option(
            "--tree", metavar="FILE", type=click.Path(), callback=_tree,
            help="TOML with the tiers of several clusters, and from which each takes its events; in the place of --tiers.",
        ),
        click.option(
            "--grace", "graces", multiple=True, metavar="[TIER=]SECONDS", callback=_graces,
            help="How long a tier may take to count what is new; may be repeated.  [default: 120]",
        ),
        click.option(
            "--only", multiple=True, metavar="TIER=PATTERN", callback=_only,
            help="The topics that a tier has to count.  [default: those of the auditor's pattern; what a load has ever loaded]",
        ),
        click.option(
            "--producer-timeout", type=SECONDS, default=300.0, show_default=True, metavar="SECONDS", envvar="MOLDAU_AUDIT_PRODUCER_TIMEOUT",
            help="After so long without a record of a producer that did not close, the count in the log is taken for what it sent.",
        ),
    ):  # fmt: skip
        function = option(function)
    return function


def rules_of(
    topics: tuple[str, ...],
    since: int | None,
    tiers: "TierTree",
    tree: "TierTree | None",
    graces: dict[str, int],
    only: "dict[str, re.Pattern[str]]",
    producer_timeout: float,
) -> "Callable[[], Rules]":
    """What the options ask for, at any time."""
    from moldau.audit.rules import GRACE_MS, Rules
    from moldau.tracking.clock import now_ms

    if tiers and tree is not None:
        raise click.UsageError("--tree has the tiers and their order, so --tiers does not go with it")

    def now() -> Rules:
        return Rules(
            now_ms=now_ms(),
            tree=tiers if tree is None else tree,
            grace_ms=graces.get("", GRACE_MS),
            graces_ms=graces,
            only={tier: lambda topic, wanted=wanted: bool(wanted.fullmatch(topic)) for tier, wanted in only.items()},  # type: ignore[misc]
            producer_timeout_ms=int(producer_timeout * 1000),
            topics=set(topics) or None,
            since_ms=since,
        )

    return now


def unheard_tier(tier: str, heard: Collection[str], option: str, *, otherwise: str = "") -> click.BadParameter:
    """Wrong use: a tier that is not among those `heard` of. It names the nearest of them; where none is near, all, and `otherwise`."""
    if hint := did_you_mean(tier, heard):
        return click.BadParameter(f"no tier {tier} has published counts{hint}", param_hint=option)
    return click.BadParameter(f"tier {tier} has no counts yet, {', '.join(sorted(heard))} have{otherwise}", param_hint=option)


def exit_code(report: "Report", *, complete: bool) -> int:
    """The exit code of a report. With `complete` no verdict may be waiting for anything, late counts neither."""
    if report.alarming:
        return MISSING_OR_DOUBLED
    return DONE if (report.complete if complete else report.decided) else UNDECIDED
