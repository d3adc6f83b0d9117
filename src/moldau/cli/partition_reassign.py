"""``moldau partition reassign``: moves replicas to other brokers; lists, verifies and cancels what is under way."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from moldau.cli.move_throttle import throttle_option
from moldau.cli.options import (
    BROKERS,
    REPLICAS_MAX,
    TOPIC,
    ExistingPath,
    bootstrap_option,
    json_option,
    open_cluster,
    timeout_option,
)
from moldau.cli.output import counted, print_json, print_table, say
from moldau.cli.partition_moves import (
    ClusterLayout,
    MoveProgress,
    alter,
    begin,
    changes,
    check_brokers,
    check_topics,
    joined,
    lift_throttle,
    print_plan,
    raise_problems,
    read_layout,
    wait_option,
)
from moldau.cli.reassignment_file import read_file
from moldau.client.placement import Placement, balanced, fitted

if TYPE_CHECKING:
    from moldau.client.cluster import Cluster
    from moldau.model.identity import TopicPartition


@click.command("reassign")
@click.argument("file", required=False, type=ExistingPath(dir_okay=False, allow_dash=True))
@click.option("--topic", "topics", metavar="NAME", type=TOPIC, multiple=True, help="Move this topic; may be repeated.")
@click.option("--brokers", type=BROKERS, help="The brokers that may have its replicas.  [default: all live brokers]")
@click.option("-r", "--replication-factor", type=click.IntRange(1, REPLICAS_MAX), help="How many brokers keep a copy.  [default: as now]")
@click.option("--dry-run", is_flag=True, help="Only show what would be changed.")
@click.option("--list", "listed", is_flag=True, help="Show the reassignments that are under way.")
@click.option("--verify", is_flag=True, help="Show whether those of FILE or of the topics are completed; exit code 1 if not all are.")
@click.option("--cancel", is_flag=True, help="Cancel those of FILE or of the topics, or all: replicas are again where they were before.")
@throttle_option
@wait_option(None)
@json_option
@bootstrap_option
@timeout_option(10.0)
def reassign(
    file: str | None,
    topics: tuple[str, ...],
    brokers: tuple[int, ...] | None,
    replication_factor: int | None,
    dry_run: bool,
    listed: bool,
    verify: bool,
    cancel: bool,
    throttle: int | None,
    wait: float | None,
    as_json: bool,
    bootstrap: str,
    timeout: float,
) -> None:
    """Move replicas to other brokers, as a FILE in Kafka's JSON format says, or as is computed for topics.

    For --topic every replica that is on one of --brokers stays if it can. The others are moved, in few steps, so that each partition lies
    in as many racks as it can and the brokers have equal numbers of the topics' replicas and leaders.

    \b
    moldau partition reassign --topic orders --brokers 2,3,4 --dry-run
    moldau partition reassign --topic orders --brokers 2,3,4 --wait 1h
    moldau partition reassign --topic orders --verify

    Nothing is begun unless all topics, partitions and brokers exist. Without --wait it returns when the brokers have begun. With
    --dry-run --json it prints a FILE.
    """
    _check_use(file, topics, brokers, replication_factor, modes=(dry_run, listed, verify, cancel), throttle=throttle, wait=wait)
    with open_cluster(bootstrap, timeout) as cluster:
        check_topics(cluster, topics)
        layout = read_layout(cluster)
        if listed:
            _list(layout, topics, as_json=as_json)
            return
        given = None if file is None else read_file(file, layout)
        if verify:
            _verify(cluster, layout, given, topics, as_json=as_json)
        elif cancel:
            _cancel(cluster, layout, given, topics)
        else:
            _move(
                cluster, layout, given or _computed(layout, topics, brokers, replication_factor), dry_run, throttle, wait, as_json=as_json
            )


def _check_use(
    file: str | None,
    topics: Sequence[str],
    brokers: Sequence[int] | None,
    replication_factor: int | None,
    *,
    modes: Sequence[bool],
    throttle: int | None,
    wait: float | None,
) -> None:
    """click.UsageError for options that do not go together."""
    _, listed, _, cancel = modes
    if sum(modes) > 1:
        raise click.UsageError("give only one of --dry-run, --list, --verify and --cancel")
    if any(modes) and (wait is not None or throttle is not None):
        raise click.UsageError("--wait and --throttle are for reassignments that this command begins")
    if file is not None and topics:
        raise click.UsageError("give either FILE or --topic")
    if file is None and not topics and not (listed or cancel):
        raise click.UsageError("give FILE or --topic")
    if listed and file is not None:
        raise click.UsageError("--list shows topics, or all: leave FILE out")
    if (brokers or replication_factor) and (file is not None or any(modes[1:])):
        raise click.UsageError("--brokers and --replication-factor are for reassignments that are computed")


def _computed(layout: ClusterLayout, topics: Sequence[str], brokers: Sequence[int] | None, factor: int | None) -> Placement:
    check_brokers(brokers or (), layout)
    racks = {broker: rack for broker, rack in layout.racks.items() if brokers is None or broker in brokers}
    now = layout.of_topics(topics)
    return balanced(fitted(now, racks, factor), racks, now)


def _move(
    cluster: "Cluster", layout: ClusterLayout, wanted: Placement, dry_run: bool, throttle: int | None, wait: float | None, *, as_json: bool
) -> None:
    before = layout.placement
    targets = changes(before, wanted)
    print_plan(before, targets, as_json=as_json)
    if dry_run:
        return
    begun = begin(cluster, before, targets, throttle)
    problems = [f"partition {each} was not changed" for each in targets if each not in begun]
    if wait is not None:
        waited = [each for each in wanted if each in begun or each in layout.moving]
        moving = MoveProgress(cluster, wait).wait_moved(waited)
        problems += [f"partition {each} still moves" for each in moving]
        if throttle is not None and not moving:
            lift_throttle(cluster, waited)
    raise_problems(problems)
    say(f"{counted(len(begun), 'reassignment')} {'begun' if wait is None else 'completed'}", err=True)


def _list(layout: ClusterLayout, topics: Sequence[str], *, as_json: bool) -> None:
    ongoing = {where: each for where, each in layout.moving.items() if not topics or where.topic in topics}
    if as_json:
        print_json(
            [
                {
                    "topic": where.topic,
                    "partition": where.partition,
                    "replicas": list(each.replicas),
                    "adding": list(each.adding),
                    "removing": list(each.removing),
                }
                for where, each in ongoing.items()
            ]
        )
    elif ongoing:
        rows = [(where, joined(each.replicas), joined(each.adding), joined(each.removing)) for where, each in ongoing.items()]
        print_table(("partition", "replicas", "adding", "removing"), rows)
    else:
        say("no reassignment is under way")


def _verify(cluster: "Cluster", layout: ClusterLayout, given: Placement | None, topics: Sequence[str], *, as_json: bool) -> None:
    """A partition is completed when nothing of it is under way, and with FILE it has the replicas of that. Then a throttle is removed."""
    now = layout.placement
    states: dict[TopicPartition, str] = {}
    for where in given or layout.of_topics(topics):
        other = given is not None and now[where] != given[where]
        states[where] = "under way" if where in layout.moving else "other replicas" if other else "completed"
    if as_json:
        print_json([{"topic": w.topic, "partition": w.partition, "replicas": list(now[w]), "state": state} for w, state in states.items()])
    else:
        rows = [(where, joined(now[where]), state) for where, state in states.items() if state != "completed"]
        if rows:
            print_table(("partition", "replicas", "state"), rows)
        say(f"{sum(state == 'completed' for state in states.values())} of {counted(len(states), 'reassignment')} completed")
    left = sum(state != "completed" for state in states.values())
    if "under way" not in states.values():
        lift_throttle(cluster, states)
    if left:
        raise click.ClickException(f"{counted(left, 'reassignment')} not completed")


def _cancel(cluster: "Cluster", layout: ClusterLayout, given: Placement | None, topics: Sequence[str]) -> None:
    """Only what is under way: another command may have completed or cancelled the rest."""
    wanted = [where for where in layout.moving if (given is None or where in given) and (not topics or where.topic in topics)]
    begun = alter(cluster, dict.fromkeys(wanted))
    say(f"{counted(len(begun), 'reassignment')} cancelled" if begun else "no reassignment is under way")
    raise_problems([f"partition {each} was not cancelled" for each in wanted if each not in begun])
