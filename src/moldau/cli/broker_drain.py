"""``moldau broker drain``: a broker leads nothing any more, or has nothing any more."""

from collections.abc import Iterator

import click

from moldau.cli.move_throttle import throttle_option
from moldau.cli.options import BROKER, bootstrap_option, json_option, open_cluster, timeout_option
from moldau.cli.output import say
from moldau.cli.partition_moves import (
    ClusterLayout,
    MoveProgress,
    carry_out,
    print_plan,
    raise_problems,
    read_layout,
    wait_option,
)
from moldau.client.placement import Placement, led_elsewhere, without_broker


@click.command("drain")
@click.argument("broker", metavar="ID", type=BROKER)
@click.option("--replicas", is_flag=True, help="Move its replicas too, so that nothing is left on it.")
@click.option("--dry-run", is_flag=True, help="Only show what would be changed.")
@throttle_option
@wait_option(600.0)
@json_option
@bootstrap_option
@timeout_option(10.0)
def drain(
    broker: int, replicas: bool, dry_run: bool, throttle: int | None, wait: float, as_json: bool, bootstrap: str, timeout: float
) -> None:
    """Have the broker ID lead no partition: another replica in sync becomes the preferred leader, and leads.

    It remains a follower, so it can be stopped without a pause for clients, and `moldau partition balance` gives it leaders again. With
    --replicas all its replicas are copied to other brokers, in other racks than the rest where there are such, and then deleted; the
    broker may be dead for ever. Topics that are created meanwhile may still choose it: run the command again, which changes only what is
    left.
    """
    with open_cluster(bootstrap, timeout) as cluster:
        layout = read_layout(cluster)
        if broker not in layout.racks and not any(broker in each.replicas for each in layout.partitions.values()):
            live = ", ".join(map(str, layout.racks))
            raise click.ClickException(f"there is no broker {broker} (live are {live})")
        before = layout.placement
        targets = without_broker(before, layout.racks, broker) if replicas else _without_leaders(layout, broker)
        print_plan(before, targets, as_json=as_json)
        if not dry_run:
            moving = [each for each, move in layout.moving.items() if broker in move.removing and each not in targets]
            carry_out(cluster, before, targets, MoveProgress(cluster, wait), moving, throttle=throttle)
            raise_problems(list(_left(read_layout(cluster), broker, replicas=replicas)))
            say(f"broker {broker} {'has no replicas' if replicas else 'leads no partition'}", err=True)


def _without_leaders(layout: ClusterLayout, broker: int) -> Placement:
    """The partitions that it leads, or leads when it can, to be led by another replica in sync, where there is one."""
    candidates = {}
    for where, replicas in layout.placement.items():
        found = layout.partitions[where]
        able = [each for each in replicas if each != broker and each in found.isr and each in layout.racks]
        if able and broker in (found.leader, replicas[0]) and broker in replicas:
            candidates[where] = able
    return led_elsewhere(layout.placement, candidates, broker, layout.racks)


def _left(layout: ClusterLayout, broker: int, *, replicas: bool) -> Iterator[str]:
    """In words, what is still there."""
    for where, found in layout.partitions.items():
        if replicas and broker in found.replicas:
            yield f"broker {broker} still has a replica of {where}"
        elif not replicas and broker == found.leader:
            others = len(found.replicas) > 1
            reason = "no other replica is in sync" if others else "it has no other replica; --replicas moves it"
            yield f"broker {broker} still leads {where}: {reason}"
