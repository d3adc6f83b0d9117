"""``moldau partition elect``: preferred leaders, or leaders of partitions that have none."""

from collections.abc import Iterable, Mapping

import click

from moldau.cli.options import TOPIC, NearChoice, bootstrap_option, json_option, open_cluster, timeout_option
from moldau.cli.output import counted, print_json, say
from moldau.cli.partition_moves import check_topics, raise_problems, read_layout
from moldau.client.errors import RequestFailedError
from moldau.client.reassignments import Reassignments
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition

KINDS = ("preferred", "unclean")


@click.command("elect")
@click.argument("kind", type=NearChoice(KINDS))
@click.option("--topic", "topics", metavar="NAME", type=TOPIC, multiple=True, help="Only partitions of this topic; may be repeated.")
@click.option("--partition", "indexes", type=click.IntRange(min=0), multiple=True, help="Of the one topic only this one; may be repeated.")
@click.option("--all", "all_", is_flag=True, help="All partitions of the cluster, also those of internal topics.")
@json_option
@bootstrap_option
@timeout_option(10.0)
def elect(kind: str, topics: tuple[str, ...], indexes: tuple[int, ...], all_: bool, as_json: bool, bootstrap: str, timeout: float) -> None:
    """Elect leaders: the preferred ones, which are the first replicas, or unclean ones.

    An unclean election gives partitions without a leader one of their live replicas, though it was not in sync: records that were
    acknowledged and that it lacks are lost. Partitions that are led already are left as they are.
    """
    if all_ == bool(topics):
        raise click.UsageError("give --topic or --all")
    if indexes and len(topics) != 1:
        raise click.UsageError("--partition needs exactly one --topic")
    with open_cluster(bootstrap, timeout) as cluster:
        wanted = None
        if not all_:
            check_topics(cluster, topics)
            wanted = _partitions(read_layout(cluster).of_topics(topics), indexes)
        outcomes = Reassignments(cluster).elect(wanted, unclean=kind == "unclean")
        layout = read_layout(cluster)
    failed = {where: error for where, error in outcomes.items() if _has_failed(error)}
    if as_json:
        print_json(
            [
                {
                    "topic": where.topic,
                    "partition": where.partition,
                    "leader": int(layout.partitions[where].leader) if where in layout.partitions else None,
                    "elected": error is None,
                    "error": error.code.name if error is not None and where in failed else None,
                }
                for where, error in outcomes.items()
            ]
        )
    else:
        _print(outcomes)
    raise_problems([f"{error.code.name}: {error.message}" for error in failed.values() if error])


def _partitions(found: Iterable[TopicPartition], indexes: tuple[int, ...]) -> list[TopicPartition]:
    known = list(found)
    for index in indexes:
        if not any(each.partition == index for each in known):
            message = f"topic {known[0].topic} has partitions 0 to {len(known) - 1}, not {index}"
            raise click.BadParameter(message, param_hint="--partition")
    return [each for each in known if not indexes or each.partition in indexes]


def _has_failed(error: RequestFailedError | None) -> bool:
    return error is not None and error.code is not ErrorCode.ELECTION_NOT_NEEDED


def _print(outcomes: Mapping[TopicPartition, RequestFailedError | None]) -> None:
    elected = sum(error is None for error in outcomes.values())
    needless = sum(error is not None and error.code is ErrorCode.ELECTION_NOT_NEEDED for error in outcomes.values())
    say(f"elected {counted(elected, 'leader')}" + (f"; {counted(needless, 'partition')} needed no election" if needless else ""))
