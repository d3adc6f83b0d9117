"""Each producer id is given out once, none is waited for as long as the tree answers in time, and what cannot be had is an error."""

from dataclasses import dataclass, field

import pytest

from moldau.cluster import znodes
from moldau.cluster.changes import NewCluster
from moldau.cluster.producer_ids import BLOCK_SIZE, ProducerIds
from moldau.cluster.store import MetadataStore
from moldau.cluster.znodes import ProducerIdBlock, decode_block, encode_block
from moldau.model.errors import CoordinationError
from moldau.model.steps import Steps, Suspension
from moldau.ports.coordination import Data, GetData, Outcome, SetData
from moldau.testing.clock import FakeClock
from moldau.testing.coordination import FakeSession, FakeTree

LAST = 2**63 - 1


@dataclass
class Broker:
    """One that gives out ids."""

    session: FakeSession
    ids: ProducerIds

    def take(self, count: int) -> list[int]:
        return [self.ids.next() for _ in range(count)]


@dataclass
class World:
    """Brokers on one tree."""

    clock: FakeClock = field(default_factory=FakeClock)
    drawn: list[int] = field(default_factory=list)
    """Numbers that are drawn next; 0 when there are no more."""

    def __post_init__(self) -> None:
        self.tree = FakeTree(self.clock)
        self.other = self.tree.session()
        MetadataStore(self.other).write([NewCluster(znodes.ROOTS, "c")], lambda _outcome: None)

    def broker(self, broker_id: int = 0) -> Broker:
        session = self.tree.session()
        return Broker(session, ProducerIds(MetadataStore(session), broker_id, self.random_bytes))

    def random_bytes(self, count: int) -> bytes:
        return (self.drawn.pop(0) if self.drawn else 0).to_bytes(count, "big")

    def last_block(self) -> ProducerIdBlock | None:
        outcomes: list[Outcome] = []
        self.other.submit(GetData(znodes.PRODUCER_ID_BLOCK), outcomes.append)
        assert isinstance(outcomes[0], Data)
        return decode_block("", outcomes[0].data)

    def write_block(self, start: int, end: int) -> None:
        """As another broker does."""
        self.other.submit(SetData(znodes.PRODUCER_ID_BLOCK, encode_block(ProducerIdBlock(9, start, end))), lambda _outcome: None)


@pytest.fixture
def world() -> World:
    return World()


def run(steps: Steps) -> list[str]:
    """Steps that wait for something; the list says when they have ended."""
    ended: list[str] = []

    def step() -> None:
        for pause in steps:
            assert isinstance(pause, Suspension)
            pause.begin(step)
            return
        ended.append("ended")

    step()
    return ended


def test_ids_of_a_block_follow_each_other_and_blocks_of_several_brokers_do_not_overlap(world: World) -> None:
    one, two = world.broker(1), world.broker(2)
    taken = [*one.take(1), *two.take(1), *one.take(2 * BLOCK_SIZE), *two.take(2 * BLOCK_SIZE)]
    assert taken[:3] == [0, BLOCK_SIZE, 1]
    assert len(dict.fromkeys(taken)) == len(taken)


def test_the_first_ids_of_a_cluster_begin_at_a_random_multiple_of_2_to_the_31(world: World) -> None:
    """Drawn once: later blocks follow it, also those of other brokers."""
    world.drawn += [0xFFFF_FFFF, 5]
    first = 0x7FFF_FFFF * 2**31
    assert world.broker(1).take(2) == [first, first + 1]
    assert world.broker(2).take(1) == [first + BLOCK_SIZE]
    assert first < 2**62


def test_a_cluster_that_has_given_out_ids_keeps_to_those_that_follow(world: World) -> None:
    world.drawn += [3]
    world.write_block(1000, 1999)
    assert world.broker().take(1) == [2000]


def test_after_a_restart_none_is_given_out_again_and_what_was_not_used_is_lost(world: World) -> None:
    assert world.broker().take(2) == [0, 1]
    assert world.broker().take(1) == [BLOCK_SIZE]
    assert world.last_block() == ProducerIdBlock(0, BLOCK_SIZE, 2 * BLOCK_SIZE - 1)


def test_the_next_block_is_fetched_before_the_last_id_of_one_is_used(world: World) -> None:
    broker = world.broker()
    broker.take(1)
    broker.session.hold()
    assert broker.take(BLOCK_SIZE - 1)[-1] == BLOCK_SIZE - 1
    assert broker.session.held == 1
    assert not broker.ids.is_ready
    broker.session.release()
    assert broker.ids.is_ready
    assert broker.take(1) == [BLOCK_SIZE]


def test_an_id_that_is_not_there_yet_is_an_error_to_try_again_after_or_is_waited_for(world: World) -> None:
    broker = world.broker()
    broker.session.hold()
    with pytest.raises(CoordinationError, match="not read yet") as error:
        broker.ids.next()
    assert error.value.retriable
    waiting = [run(broker.ids.ready()), run(broker.ids.ready())]
    assert waiting == [[], []]
    broker.session.release()
    assert waiting == [["ended"], ["ended"]]
    assert run(broker.ids.ready()) == ["ended"]
    assert broker.take(2) == [0, 1]
    assert world.last_block() == ProducerIdBlock(0, 0, BLOCK_SIZE - 1), "one block for all that have waited"


def test_a_lost_answer_takes_one_block(world: World) -> None:
    broker = world.broker()
    broker.session.lose_answer(2)
    ready = run(broker.ids.ready())
    assert ready == []
    broker.session.resume()
    assert ready == ["ended"]
    assert broker.take(1) == [0]


def test_a_block_that_another_broker_takes_meanwhile_is_passed(world: World) -> None:
    broker = world.broker()
    broker.session.hold()
    ready = run(broker.ids.ready())
    broker.session.release(1)
    world.write_block(0, 4)
    broker.session.release()
    assert ready == ["ended"]
    assert broker.take(1) == [5]


def test_a_store_that_fails_ends_the_wait_and_is_asked_again(world: World) -> None:
    broker = world.broker()
    broker.session.fail_next(CoordinationError("no room", retriable=True))
    assert run(broker.ids.ready()) == ["ended"]
    assert not broker.ids.is_ready
    assert broker.take(1) == [0]


def test_when_all_are_used_there_is_an_error_that_says_so(world: World) -> None:
    world.write_block(0, LAST - 2 * BLOCK_SIZE)
    broker = world.broker()
    assert len(broker.take(BLOCK_SIZE)) == BLOCK_SIZE
    with pytest.raises(CoordinationError, match="no producer ids are left") as error:
        broker.ids.next()
    assert not error.value.retriable


@pytest.mark.parametrize(
    ("taken_before", "used", "following"),
    [
        pytest.param(0, 4711, 4712, id="before the first"),
        pytest.param(1, 500, 501, id="within the block"),
        pytest.param(10, 5, 10, id="given out already"),
        pytest.param(1, 4711, 4712, id="beyond the block"),
        pytest.param(950, 1500, 1501, id="within the next block"),
        pytest.param(950, 9999, 10_000, id="beyond the next block"),
    ],
)
def test_ids_of_an_adopted_log_are_passed_over_and_stay_so(world: World, taken_before: int, used: int, following: int) -> None:
    broker = world.broker()
    broker.take(taken_before)
    done: list[CoordinationError | None] = []
    broker.ids.pass_over(used, done.append)
    assert done == [None]
    assert broker.take(1) == [following]
    block = world.last_block()
    assert block is not None
    assert block.end >= used, "the next process knows it, too"


def test_a_store_that_fails_while_ids_are_passed_over_is_reported(world: World) -> None:
    broker = world.broker()
    done: list[CoordinationError | None] = []
    broker.session.fail_next(CoordinationError("no room", retriable=True))
    broker.ids.pass_over(4711, done.append)
    assert [str(error) for error in done] == ["no room"]
    assert broker.take(1) == [4712]
