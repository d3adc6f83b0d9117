"""Processor time of a controller for the failover of a broker, and of the controller itself, in a cluster on fakes.

10,000 partitions of three replicas on 200 brokers (`--partitions`, `--brokers`). Measured are the steps of the controller alone, decisions
and what is sent; not the tree, nor the brokers. Run: ``python benchmarks/controller_failover.py``.
"""

import argparse
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from moldau.cluster.controller.events import Effect, Event
from moldau.cluster.controller.machine import Controller
from moldau.cluster.controller.requests import CreateTopics, TopicSpec
from support.controllers import Cluster

TOPICS = 100
seconds = 0.0


def main() -> None:
    """Create, end the broker that leads most, then the controller; print the processor time of each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--brokers", type=int, default=200)
    options = parser.parse_args()
    step = Controller.step

    def measured(controller: Controller, event: Event, now_ms: int) -> list[Effect]:
        global seconds
        begun = time.process_time()
        try:
            return step(controller, event, now_ms)
        finally:
            seconds += time.process_time() - begun

    cluster = Cluster(options.brokers, 0.0, "partitions.per.request.max=100000")
    cluster.settle(5)
    setattr(Controller, "step", measured)  # noqa: B010
    each = options.partitions // TOPICS
    for name, action in (
        ("create", lambda: _create(cluster, each)),
        ("a broker ends", lambda: cluster.brokers[1].session.expire()),
        ("the controller ends", lambda: cluster.brokers[0].session.expire()),
    ):
        _run(cluster, name, action)


def _create(cluster: Cluster, partitions: int) -> None:
    made = cluster.brokers[0].ask(CreateTopics([TopicSpec(f"t{number}", partitions, 3) for number in range(TOPICS)]))
    cluster.settle(60)
    assert made, "the topics are not created yet"


def _run(cluster: Cluster, name: str, action: object) -> None:
    global seconds
    seconds = 0.0
    action()  # type: ignore[operator]
    cluster.settle(10)
    (controller,) = cluster.controllers()
    image = controller.controller.image
    unled = sum(not topic.is_led(index, image.live) for topic in image.topics.values() for index in range(len(topic.partitions)))
    print(f"{name}: {seconds:.2f} s of controller CPU; {image.partitions} partitions, {len(image.live)} brokers, {unled} without leader")


if __name__ == "__main__":
    main()
