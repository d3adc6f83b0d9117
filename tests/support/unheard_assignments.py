"""Members of a group that end before they have heard of their assignment: prints `closed` in the end.

Each of them asks for messages once, so that it joins. Then it waits, without hearing of anything, until the coordinator has answered it.
"""

from functools import partial

from moldau.client import Consumer
from moldau.client.admin import Admin
from moldau.client.cluster import Cluster
from moldau.client.groups import Groups
from moldau.testing.broker import Broker
from support.paper import wait_until

ROUNDS = 120


def main() -> None:
    with Broker(settings={"group.initial.rebalance.delay.ms": "0"}) as broker, Cluster(broker.bootstrap_servers) as cluster:
        Admin(cluster).create_topic("t", 3)
        groups = Groups(cluster)
        for number in range(ROUNDS):
            with Consumer(broker.bootstrap_servers, group_id=f"g-{number}", topics=["t"], assignor="range") as consumer:
                consumer.poll(0.0)
                wait_until(partial(is_stable, groups, f"g-{number}"), "it has an assignment")
    print("closed")


def is_stable(groups: Groups, group: str) -> bool:
    return group in [each.group for each in groups.list_groups(["Stable"])]


if __name__ == "__main__":
    main()
