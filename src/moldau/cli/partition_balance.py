"""``moldau partition balance``: replicas and leaders evened out over the brokers."""

import click

from moldau.cli.move_throttle import throttle_option
from moldau.cli.options import TOPIC, bootstrap_option, json_option, open_cluster, timeout_option
from moldau.cli.output import counted, say
from moldau.cli.partition_moves import (
    MoveProgress,
    carry_out,
    changes,
    check_topics,
    print_plan,
    read_layout,
    wait_option,
)
from moldau.client.placement import balanced


@click.command("balance")
@click.option("--topic", "topics", metavar="NAME", type=TOPIC, multiple=True, help="Move only this topic; may be repeated.  [default: all]")
@click.option("--dry-run", is_flag=True, help="Only show what would be changed.")
@throttle_option
@wait_option(600.0)
@json_option
@bootstrap_option
@timeout_option(10.0)
def balance(
    topics: tuple[str, ...], dry_run: bool, throttle: int | None, wait: float, as_json: bool, bootstrap: str, timeout: float
) -> None:
    """Even out over the live brokers the numbers of replicas and of leaders, in few moves, and the replicas of each partition over racks.

    With --dry-run --json it prints a file for `moldau partition reassign`. Partitions that are being reassigned are left as they are, and
    replicas on brokers that are not live stay there: `moldau broker drain` moves them.
    """
    with open_cluster(bootstrap, timeout) as cluster:
        check_topics(cluster, topics)
        layout = read_layout(cluster)
        before = layout.placement
        movable = [each for each in (layout.of_topics(topics) if topics else before) if each not in layout.moving]
        targets = changes(before, balanced(before, layout.racks, movable))
        led_elsewhere = [each for each in movable if each not in targets and layout.partitions[each].leader != before[each][0]]
        print_plan(before, targets, as_json=as_json)
        if led_elsewhere and not as_json:
            say(f"{counted(len(led_elsewhere), 'partition')} to be led by preferred leaders again")
        if not dry_run:
            carry_out(cluster, before, targets, MoveProgress(cluster, wait), led_elsewhere, throttle=throttle)
            say("balanced", err=True)
