"""How many changes may wait for the controller, and how long a request waits for one: the change itself does not end with the wait."""

from collections.abc import Generator
from typing import Any

import pytest

from moldau.cluster.controller.requests import GrowthSpec, PlannedTopic, TopicChoice, TopicSpec
from moldau.model.errors import ErrorCode
from moldau.model.identity import TopicPartition
from moldau.model.steps import Pause
from support.broker_world import BrokerWorld

BOUND = 3
TIMEOUT_MS = 2000


class SlowWorld(BrokerWorld):
    """A broker whose store answers when the test has its jobs run."""

    def __init__(self, path: str, **settings: Any) -> None:
        super().__init__(immediate=False, store=path, **settings)
        self.create_topic("t")
        self.store.run_on(self.background)

    def submit(self, steps: Generator[Pause, None, Any]) -> list[Any]:
        """Run the steps of a request in turns; the list gets their outcome."""
        outcomes: list[Any] = []

        def run() -> Generator[Pause, None, None]:
            outcomes.append((yield from steps))

        self.broker.slices.run(run(), lambda error: outcomes.append(error) if error is not None else None)
        return outcomes

    def create(self, name: str, **options: Any) -> list[Any]:
        return self.submit(self.broker.admin.create([TopicSpec(name)], **options))

    def answer(self) -> None:
        """Let the store carry out everything."""
        for _ in range(10):
            self.background.run_all()
            self.clock.settle()


@pytest.fixture
def world(tmp_path: Any) -> SlowWorld:
    return SlowWorld(str(tmp_path / "store"), admin_requests_max=BOUND)


def code_of(outcomes: list[Any], name: str) -> ErrorCode | None:
    (by_name,) = outcomes
    outcome = by_name[name] if name in by_name else by_name[TopicChoice(name)]
    return getattr(outcome, "code", None)


def test_beyond_the_bound_a_change_is_refused_at_once_and_none_is_made(world: SlowWorld) -> None:
    waiting = [world.create(f"n{number}") for number in range(BOUND)]
    refused = world.create("refused")
    assert waiting == [[]] * BOUND
    assert code_of(refused, "refused") is ErrorCode.REQUEST_TIMED_OUT
    grown = world.submit(world.broker.admin.grow([GrowthSpec("t", 2)]))
    assert code_of(grown, "t") is ErrorCode.REQUEST_TIMED_OUT
    world.answer()
    assert all(isinstance(outcomes[0][f"n{number}"], PlannedTopic) for number, outcomes in enumerate(waiting))
    assert sorted(world.broker.metadata.topics) == ["n0", "n1", "n2", "t"]
    later = world.create("later")
    world.answer()
    assert code_of(later, "later") is None, "there is room again"


def test_a_request_ends_with_its_timeout_and_its_change_is_made_all_the_same(world: SlowWorld) -> None:
    noted: list[str] = []
    created = world.create("new", made=lambda plan: noted.append(plan.name), timeout_ms=TIMEOUT_MS)
    deleted = world.submit(world.broker.admin.delete([TopicChoice("t")], lambda topic: noted.append(topic.name), timeout_ms=TIMEOUT_MS))
    world.clock.advance(TIMEOUT_MS / 1000 - 0.001)
    assert (created, deleted) == ([], [])
    world.clock.advance(0.001)
    assert (code_of(created, "new"), code_of(deleted, "t")) == (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.REQUEST_TIMED_OUT)
    assert noted == []
    world.answer()
    assert (len(created), len(deleted)) == (1, 1), "answered once"
    assert sorted(noted) == ["new", "t"]
    assert list(world.broker.metadata.topics) == ["new"]
    assert world.broker.partitions.get(TopicPartition("new", 0)) is not None


def test_a_change_counts_until_it_is_made_also_when_its_request_has_timed_out(world: SlowWorld) -> None:
    """Or short timeouts would let any number of changes wait for a slow store."""
    for number in range(BOUND):
        world.create(f"n{number}", timeout_ms=1)
    world.clock.advance(1)
    assert code_of(world.create("refused"), "refused") is ErrorCode.REQUEST_TIMED_OUT
    world.answer()
    accepted = world.create("accepted")
    world.answer()
    assert code_of(accepted, "accepted") is None


def test_an_answer_before_the_timeout_leaves_no_timer(world: SlowWorld) -> None:
    created = world.create("new", timeout_ms=TIMEOUT_MS)
    world.answer()
    world.clock.advance(TIMEOUT_MS / 1000)
    assert code_of(created, "new") is None
    assert len(created) == 1
