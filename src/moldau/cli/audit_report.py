"""``moldau audit report``: how the tiers compare now."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from moldau.cli.audit_comparing import comparing_options, exit_code, rules_of
from moldau.cli.options import bootstrap_option, json_option, open_cluster, timeout_option
from moldau.cli.output import say
from moldau.model.near_names import did_you_mean
from moldau.tracking.clock import moment

if TYPE_CHECKING:
    from moldau.audit.missing import Guids, Missing
    from moldau.audit.rules import Rules
    from moldau.audit.tiers import TierCounts
    from moldau.audit.verdicts import Report
    from moldau.client.cluster import Cluster


@click.command("report")
@comparing_options
@click.option("--complete", is_flag=True, help="Exit code 3 until everything is complete to stay, after the graces too.")
@click.option("--windows", is_flag=True, help="Show every window, not only those at fault.")
@click.option("--missing", "with_missing", is_flag=True, help="List the guids of events that a tier lacks: reads the topics that differ.")
@click.option("--table", "tables", multiple=True, metavar="TIER=DIR", help="With --missing: where a load's tables are; may be repeated.")
@json_option
@bootstrap_option
@timeout_option(30.0)
def report(
    complete: bool,
    windows: bool,
    with_missing: bool,
    tables: tuple[str, ...],
    as_json: bool,
    bootstrap: str,
    timeout: float,
    **comparing: Any,
) -> None:
    """Compare the tiers by topic and ten minutes, and trace what differs to datacenter, service, host and instance.

    Exit codes: 0 complete, 1 the counts could not be had, 2 wrong use, 3 not decided yet, 4 loss or duplication.

    \b
    moldau audit report --tiers producer,local,lake --grace lake=900
    moldau audit report --topic departures --since 2013-07-01 --json
    """
    from moldau.audit.follow import read_audit
    from moldau.audit.reconcile import reconcile
    from moldau.cli.audit_document import as_document
    from moldau.cli.audit_view import print_report
    from moldau.cli.output import print_json

    rules, places = rules_of(**comparing), _places(tables)
    with open_cluster(bootstrap, timeout) as cluster:
        found = read_audit(cluster)
        _check_tiers(found, rules())
        compared = reconcile(found, rules())
        _check_comparable(found, compared)
        lacks = _missing(cluster, compared, places) if with_missing else None
    if as_json:
        print_json(as_document(compared) | ({} if lacks is None else {"missing": [asdict(each) for each in lacks]}))
    else:
        print_report(compared, every_window=windows)
        known = {key.topic for counts in found.counts.values() for key in counts}
        for topic in compared.unheard:
            if hint := did_you_mean(topic, known):
                say(f"topic {topic}{hint}", err=True)
        for each in lacks or ():
            where = f"missing: {each.topic}, {moment(each.window_start_ms)}, {each.upper_tier} > {each.lower_tier}, {each.host}"
            for text in each.guids or (each.problem or "nothing: it was counted meanwhile",):
                say(f"{where}: {text}")
    click.get_current_context().exit(exit_code(compared, complete=complete))


def _places(tables: tuple[str, ...]) -> dict[str, str]:
    """The directories of tables by tier."""
    places = {}
    for text in tables:
        tier, equals, directory = text.partition("=")
        if not (tier and equals and directory):
            raise click.BadParameter(f"{text!r} is not TIER=DIR", param_hint="--table")
        places[tier] = directory
    return places


def _missing(cluster: "Cluster", compared: "Report", places: dict[str, str]) -> "list[Missing]":
    """What the tiers lack, guid by guid."""
    from moldau.audit.missing import guids_of_log, missing, wanted_instances

    wanted = wanted_instances(compared)
    log = {topic: guids_of_log(cluster, topic, instances) for topic, instances in wanted.items()}
    others: dict[tuple[str, str], Guids] = {}
    for tier, directory in places.items():
        try:
            from moldau.lake.table_guids import guids_of_table
        except ModuleNotFoundError as error:
            raise click.ClickException(f"{error.name} is not installed; to read tables takes pip install 'moldau[lake]'") from error
        others |= {(tier, topic): guids_of_table(directory, topic, instances) for topic, instances in wanted.items()}
    return list(missing(compared, log, others))


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
