"""``moldau audit report`` and ``watch``: how the tiers compare, now or repeatedly."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from itertools import groupby
from typing import TYPE_CHECKING, Any, Self

import click
from click.core import ParameterSource

from moldau.cli.audit_comparing import comparing_options, exit_code, rules_of, unheard_tier
from moldau.cli.options import SECONDS, bootstraps_option, json_option, open_cluster, timeout_option
from moldau.cli.output import say
from moldau.model.errors import PeerError, WorldError
from moldau.model.extras import MissingExtraError
from moldau.model.near_names import did_you_mean
from moldau.tracking.audit_record import PRODUCER_TIER
from moldau.tracking.clock import moment

if TYPE_CHECKING:
    from moldau.audit.missing import Guids, MissingEvents
    from moldau.audit.rules import Rules
    from moldau.audit.tiers import TierCounts
    from moldau.audit.tree import TierTree
    from moldau.audit.verdicts import Report
    from moldau.client.cluster import Cluster


@click.command("report")
@comparing_options
@click.option("--complete", is_flag=True, help="Exit code 3 until everything is complete to stay, after the graces too.")
@click.option("--windows", is_flag=True, help="Show every window, not only those at fault.")
@click.option("--svg", "picture", metavar="FILE", help="Write the tree of tiers as a picture too: counts, verdicts, lag of each edge.")
@click.option("--latency", is_flag=True, help="Show how long events were on their way to each tier, by window.")
@click.option("--missing", "with_missing", is_flag=True, help="List the guids of events that a tier lacks: reads the topics that differ.")
@click.option("--table", "tables", multiple=True, metavar="TIER=DIR", help="With --missing: where a load's tables are; may be repeated.")
@click.option(
    "--tier-bootstrap", "clusters", multiple=True, metavar="TIER=HOST:PORT",
    help="With --missing: the cluster whose topics a tier counts, where that is not --bootstrap; may be repeated.",
)  # fmt: skip
@json_option
@bootstraps_option
@timeout_option(30.0)
def report(
    complete: bool,
    windows: bool,
    picture: str | None,
    latency: bool,
    with_missing: bool,
    tables: tuple[str, ...],
    clusters: tuple[str, ...],
    as_json: bool,
    bootstraps: tuple[str, ...],
    timeout: float,
    **comparing: Any,
) -> None:
    """Compare the tiers by topic and ten minutes, and trace what differs to datacenter, service, host and instance.

    Tiers of several clusters are a tree, in a file: each is compared with the sum of those that it takes from. Their counts are read from
    the clusters that the file names, and from each --bootstrap; mirrored counts may be in several, and count once.

    Exit codes: 0 complete, 1 the counts could not be had, 2 wrong use, 3 not decided yet, 4 loss or duplication.

    \b
    moldau audit report --tiers producer,local,lake --grace lake=900
    moldau audit report --topic departures --since 2013-07-01 --json
    moldau audit report --tree tiers.toml
    """
    from moldau.audit.follow import read_audits
    from moldau.audit.reconcile import reconcile
    from moldau.cli.audit_view import as_document, print_latencies, print_report
    from moldau.cli.output import print_json

    rules = rules_of(**comparing)
    places = _EventSources.of(tables, clusters, rules().tree)
    with _open_clusters(_sources(bootstraps, rules().tree), timeout) as opened:
        found = read_audits(opened)
        _check_tiers(found, rules(), comparing["tree"])
        compared = reconcile(found, rules())
        _check_comparable(found, compared)
        _suggest_topics(found, compared)
        lacks = _missing(next(iter(opened.values())), found, compared, places, timeout) if with_missing else None
    if picture is not None:
        _write_picture(picture, compared, rules().tree)
    if as_json:
        print_json(as_document(compared) | ({} if lacks is None else {"missing": [asdict(each) for each in lacks]}))
    else:
        print_report(compared, every_window=windows)
        if latency:
            print_latencies(compared)
        for each in lacks or ():
            where = f"missing: {each.topic}, {moment(each.window_start_ms)}, {each.upper_tier} > {each.lower_tier}, {each.host}"
            problem = each.problem or ("" if each.guids else "nothing: the tier has counted it since")
            for text in (*each.guids, *filter(None, (problem,))):
                say(f"{where}: {text}")
    click.get_current_context().exit(exit_code(compared, complete=complete))


def _write_picture(file: str, compared: "Report", tree: "TierTree") -> None:
    from moldau.audit.picture import tree_picture

    try:
        with open(file, "w", encoding="utf-8") as picture:
            picture.write(tree_picture(compared, tree))
    except OSError as error:
        raise click.BadParameter(f"{file}: {(error.strerror or str(error)).lower()}", param_hint="--svg") from error


@dataclass(frozen=True, slots=True)
class _EventSources:
    """Where tiers have their events: directories of tables, and clusters."""

    tables: dict[str, str]
    clusters: dict[str, str]

    @classmethod
    def of(cls, tables: tuple[str, ...], clusters: tuple[str, ...], tree: "TierTree") -> Self:
        """From the options; a tier of the tree that has neither of them has its events where its counts are."""
        from moldau.model.host_port import parse_addresses

        by_table, by_cluster = _by_tier("--table", "DIR", tables), _by_tier("--tier-bootstrap", "HOST:PORT", clusters)
        of_tree = {tier.name: tier.bootstrap for tier in tree.tiers if tier.bootstrap and tier.name not in by_table}
        places = cls(by_table, of_tree | by_cluster)
        for tier in places.clusters:
            if tier in places.tables:
                raise click.BadParameter(f"tier {tier} has tables, by --table, and no cluster", param_hint="--tier-bootstrap")
            try:
                parse_addresses(places.clusters[tier])
            except ValueError as error:
                raise click.BadParameter(f"tier {tier}: {error}", param_hint="--tier-bootstrap") from error
        return places


def _sources(bootstraps: tuple[str, ...], tree: "TierTree") -> tuple[str, ...]:
    """The clusters whose audit topics are read: those of the tree and those of the options, or the default of these."""
    named = tuple(dict.fromkeys(tier.bootstrap for tier in tree.tiers if tier.bootstrap))
    given = click.get_current_context().get_parameter_source("bootstraps") is not ParameterSource.DEFAULT
    return tuple(dict.fromkeys((*bootstraps, *named))) if given or not named else named


@contextmanager
def _open_clusters(sources: tuple[str, ...], timeout_s: float, *make: "Callable[..., Cluster]") -> "Iterator[dict[str, Cluster]]":
    """A client for each, by the name that the cluster has where there are several."""
    with ExitStack() as stack:
        opened = [stack.enter_context(open_cluster(each, timeout_s, *make)) for each in sources]
        from moldau.audit.tiers import OWN_SOURCE

        yield {OWN_SOURCE if len(sources) == 1 else name: cluster for name, cluster in zip(sources, opened, strict=True)}


def _by_tier(option: str, what: str, values: tuple[str, ...]) -> dict[str, str]:
    places: dict[str, str] = {}
    for text in values:
        tier, equals, place = text.partition("=")
        if not (tier and equals and place):
            raise click.BadParameter(f"{text!r} is not TIER={what}", param_hint=option)
        if tier == PRODUCER_TIER:
            raise click.BadParameter(f"tier {tier} is that of the producers themselves, who keep no events", param_hint=option)
        if tier in places:
            raise click.BadParameter(f"tier {tier} is given twice", param_hint=option)
        places[tier] = place
    return places


def _missing(cluster: "Cluster", found: "TierCounts", compared: "Report", places: _EventSources, timeout_s: float) -> "list[MissingEvents]":
    """What the tiers lack, guid by guid."""
    from moldau.audit.missing import OWN_LOG, guids_of_log, missing, wanted_instances, wanted_places

    for option, named in (("--table", places.tables), ("--tier-bootstrap", places.clusters)):
        if unknown := sorted(named.keys() - set(compared.tiers)):
            hint = did_you_mean(unknown[0], compared.tiers)
            raise click.BadParameter(f"tier {unknown[0]} is not compared, only {', '.join(compared.tiers)} are{hint}", param_hint=option)
    instances = wanted_instances(compared)
    guids: dict[tuple[str, str], Guids] = {}
    wanted = sorted(wanted_places(compared, places.tables, places.clusters))
    for tier, topic in wanted:
        if tier in places.tables:
            _check_table(tier, places.tables[tier], topic, counted=found.has_counts_of(tier, topic))
    for tier, of_tier in groupby(wanted, key=lambda place: place[0]):
        topics = [topic for _, topic in of_tier]
        if tier in places.tables:
            guids |= {(tier, topic): _guids_of_table(places.tables[tier], topic, instances[topic]) for topic in topics}
        elif tier == OWN_LOG:
            guids |= {(tier, topic): guids_of_log(cluster, topic, instances[topic]) for topic in topics}
        else:
            with open_cluster(places.clusters[tier], timeout_s) as other, _naming(tier, places.clusters[tier]):
                guids |= {(tier, topic): guids_of_log(other, topic, instances[topic]) for topic in topics}
    return list(missing(compared, guids, places.tables))


@contextmanager
def _naming(tier: str, bootstrap: str) -> Iterator[None]:
    """Errors of brokers name their cluster: there are others."""
    try:
        yield
    except (WorldError, PeerError) as error:
        raise click.ClickException(f"tier {tier} at {bootstrap}: {error}") from error


def _check_table(tier: str, directory: str, topic: str, *, counted: bool) -> None:
    """A wrong directory lacks everything that the tier has. click.BadParameter."""
    try:
        from moldau.lake.table_guids import NoTableError, check_directory
    except (ModuleNotFoundError, MissingExtraError) as error:
        raise MissingExtraError("reading a table", error.name or str(error), "lake") from error
    try:
        check_directory(directory, topic, counted=counted)
    except NoTableError as error:
        raise click.BadParameter(f"tier {tier}: {error}", param_hint="--table") from error


def _guids_of_table(directory: str, topic: str, instances: frozenset[str]) -> "Guids":
    from moldau.lake.table_guids import guids_of_table

    return guids_of_table(directory, topic, instances)


def _check_tiers(found: "TierCounts", rules: "Rules", tree: "TierTree | None") -> None:
    """Tiers that are named have been heard of, unless they are named as expected: those of a file are. click.BadParameter."""
    if not found.records:
        return
    heard = {"producer", *found.heard_ms, *found.auditors}
    expected = set(rules.tiers) & rules.only.keys() if tree is None else set(tree.names)
    for option, names in (("--tiers", rules.tiers), ("--grace", rules.graces_ms), ("--only", rules.only)):
        unknown = sorted(set(names) - heard - expected - {""})
        if unknown:
            tier = unknown[0]
            first = f"run its auditor (moldau audit run --tier {tier}) or load (moldau load --tier {tier}) first"
            expect = f"to expect it already, give --tiers with it and --only {tier}=PATTERN for its topics"
            raise unheard_tier(tier, heard, option, otherwise=f"; {first}; {expect}")


def _suggest_topics(found: "TierCounts", compared: "Report") -> None:
    """The nearest topic that has counts for one that has none. That is no error: it may still be to come."""
    known = {key.topic for counts in found.counts.values() for key in counts}
    there = known | {topic for _, topic in found.untracked}
    for topic in compared.unheard:
        if topic not in there and (hint := did_you_mean(topic, known)):
            say(f"no tier has counts of topic {topic}{hint}", err=True)


def _check_comparable(found: "TierCounts", compared: "Report") -> None:
    if len(compared.tiers) < 2:
        there = f"only tier {compared.tiers[0]} has" if compared.tiers else "no tier has"
        raise click.ClickException(f"{there} published counts, so there is nothing to compare; --tiers names those that should have")
    if not found.records:
        raise click.ClickException("no tier has published counts, so there is nothing to compare")


@click.command("watch")
@comparing_options
@click.option("--every", type=SECONDS, default=5.0, show_default=True, metavar="SECONDS", help="Look so often.")
@click.option("--until-complete", is_flag=True, help="End when everything is complete; exit code 4 at the first loss or duplication.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON object for each change, one in a line.")
@bootstraps_option
@timeout_option(30.0)
def watch(every: float, until_complete: bool, as_json: bool, bootstraps: tuple[str, ...], timeout: float, **comparing: Any) -> None:
    """Show how the tiers compare, again and again, until Ctrl-C or SIGTERM: a table at a terminal, elsewhere a line for each change.

    Brokers that do not answer are asked again; the outage is reported within seconds. What all tiers have agreed about for a day is kept as
    one number for each topic.
    """
    from functools import partial

    from moldau.audit.forgetting import Watch
    from moldau.cli.audit_view import watching_view
    from moldau.cli.connecting import ClusterOutage, PatientCluster
    from moldau.cli.interruptions import Interruptions
    from moldau.cli.output import sleep_while_read

    rules, watched, outage = rules_of(**comparing), Watch(), ClusterOutage()
    make = partial(PatientCluster, report=outage.report)
    try:
        sources = _sources(bootstraps, rules().tree)
        with Interruptions() as interruptions, _open_clusters(sources, timeout, make) as opened, watching_view(as_json=as_json) as show:
            while True:
                with outage.waited_for():
                    found = watched.look(opened, rules())
                    outage.over()
                    with interruptions.held():
                        show(found)
                    if until_complete and (found.alarming or found.complete):
                        click.get_current_context().exit(exit_code(found, complete=True))
                outage.rest(every, *opened.values(), sleep=sleep_while_read)
    except KeyboardInterrupt:
        pass
