"""Two controllers on one tree, whatever happens to their sessions and in whatever order answers come: one cluster comes out.

Whatever was acknowledged is there, an epoch has one leader (the stand-in brokers check each), every write checks its controller's epoch,
and once all are connected one of them is controller, and tree, image and brokers agree.
"""

from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from moldau.cluster import znodes
from moldau.cluster.controller.machine import ControllerRole
from moldau.ports.coordination import SessionState
from support.controllers import Broker, Cluster, error_of
from support.sizes import sized

NAMES = ("a", "b", "c")
names = st.sampled_from(NAMES)
who = st.integers(0, 1)
actions = st.one_of(
    st.tuples(st.just("create"), who, names, st.sampled_from([1, 3, 130])),
    st.tuples(st.just("delete"), who, names),
    st.tuples(st.just("grow"), who, names, st.sampled_from([2, 4, 140])),
    st.tuples(st.just("wait"), st.sampled_from([0.0, 0.1, 0.6, 2.0])),
    st.tuples(st.just("suspend"), who),
    st.tuples(st.just("resume"), who),
    st.tuples(st.just("expire"), who),
    st.tuples(st.just("lose"), who, st.integers(1, 4)),
    st.tuples(st.just("hold"), who),
    st.tuples(st.just("release"), who, st.integers(1, 5)),
    st.tuples(st.just("bounce"), who),
)


class Model:
    """What was acknowledged last for each topic, None where a later request is in doubt."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, int, list[Any]]] = []

    def expected(self) -> dict[str, int | None]:
        """By topic the least number of partitions that it has to have, 0 for one that must not be there; without those in doubt."""
        found: dict[str, int | None] = {}
        for name in NAMES:
            requests = [each for each in self.asked if each[1] == name]
            outcomes = [error_of(answers[0], name) if answers else "OPEN" for _, _, _, answers in requests]
            if not requests:
                found[name] = 0
            elif all(outcome == "NONE" for outcome in outcomes):
                action, _, number, _ = requests[-1]
                found[name] = 0 if action == "delete" else number
        return found


def ask(broker: Broker, model: Model, action: str, name: str, number: int = 0) -> None:
    if action == "create":
        answers = broker.create(name, number, 2)
    elif action == "grow":
        answers = broker.grow(name, number)
    elif name in broker.controller.image.topics:
        answers = broker.delete(name)
    else:
        return
    model.asked.append((action, name, number, answers))


def act(cluster: Cluster, model: Model, action: tuple[Any, ...]) -> None:
    broker = cluster.brokers[action[1]] if isinstance(action[1], int) else cluster.brokers[0]
    match action:
        case ("create" | "delete" | "grow", _, name, *number):
            ask(broker, model, action[0], name, *number)
        case ("wait", seconds):
            cluster.settle(seconds)
        case ("suspend", _):
            broker.session.suspend()
        case ("resume", _):
            broker.session.resume()
        case ("expire", _):
            broker.session.expire()
        case ("lose", _, number):
            broker.session.lose_answer(number)
        case ("hold", _):
            broker.session.hold()
        case ("release", _, number):
            broker.session.release(number)
        case ("bounce", _):
            broker.session.expire()
            broker.session.resume()


# What was written for a topic was not what its controller remembered, as a broker came back while the write was out.
@example(0.0, [("hold", 0), ("expire", 1), ("create", 0, "a", 1), ("create", 0, "b", 3), ("resume", 1)])
@example(0.0, [("hold", 0), ("expire", 1), ("create", 0, "a", 1), ("create", 0, "b", 1)])
# A broker that registered while a deletion was on its way was never sent it.
@example(0.0, [("bounce", 0), ("create", 1, "a", 1), ("expire", 1), ("delete", 0, "a"), ("expire", 0)])
@example(0.0, [("create", 0, "a", 1), ("suspend", 0), ("delete", 0, "a"), ("bounce", 1)])
@settings(max_examples=sized(25, 600), deadline=None)
@given(st.sampled_from([0.0, 0.5]), st.lists(actions, max_size=40))
def test_one_cluster_comes_out(latency_s: float, plan: list[tuple[Any, ...]]) -> None:
    cluster = Cluster(2, latency_s)
    cluster.settle(5)
    model = Model()
    for action in plan:
        act(cluster, model, action)
        cluster.settle()
        by_epoch = [each for each in cluster.controllers() if each.controller.role is ControllerRole.ACTIVE]
        assert len(by_epoch) <= 1
    for _ in range(3):  # what was lost may be lost again
        for broker in cluster.brokers.values():
            broker.session.lose_answer(0)
            broker.session.release()
            broker.session.resume()
        cluster.settle(20)
    cluster.settle(60)
    assert all(broker.session.state is SessionState.CONNECTED for broker in cluster.brokers.values())
    assert all(answers for _, _, _, answers in model.asked), "every request is answered"
    (controller,) = cluster.controllers()
    image = controller.controller.image
    assert sorted(image.topics) == cluster.children(znodes.TOPICS)
    assert cluster.children(znodes.DELETE_TOPICS) == []
    assert image.partitions == sum(len(topic.replicas) for topic in image.topics.values())
    for name, topic in image.topics.items():
        states = cluster.states(name)
        assert len(states) == len(topic.replicas)
        for index, (state, info) in enumerate(zip(states, topic.partitions, strict=True)):
            assert state is not None
            assert info is not None
            assert (state.leader, state.leader_epoch, state.isr) == (info.leader, info.leader_epoch, info.isr)
            assert state.leader_broker_epoch == cluster.brokers[state.leader].epoch, "led in its present incarnation"
            for broker in cluster.brokers.values():
                assert broker.snapshot.topics[name].partitions[index] == info
    for broker in cluster.brokers.values():
        assert sorted(broker.snapshot.topics) == sorted(image.topics)
        assert sorted(broker.snapshot.brokers) == [0, 1]
    for name, partitions in model.expected().items():
        assert (name in image.topics) == bool(partitions)
        if partitions:
            assert len(image.topics[name].partitions) >= partitions
