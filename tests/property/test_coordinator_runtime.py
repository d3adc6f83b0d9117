"""Whatever happens in whatever order: memory is what a replay of the committed records gives, and each write is answered once."""

import logging

from hypothesis import given
from hypothesis import strategies as st

from moldau.broker.coordinators.partition_coordinator import Phase
from moldau.model.errors import ErrorCode, PeerError
from support.toy_coordinator import WAITS, Answer, ToyWorld

LOST = PeerError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "the disk is lost")

ACTIONS = st.one_of(
    st.tuples(st.just("put"), st.sampled_from("ab"), st.sampled_from(["1", "2", None])),
    st.tuples(st.just("put in answer"), st.sampled_from("ab"), st.sampled_from(["1", "2"])),
    st.tuples(st.just("refuse"), st.sampled_from("ab"), st.just("3")),
    st.tuples(st.just("answer"), st.integers(0, 4), st.none()),
    st.tuples(st.just("after writes"), st.none(), st.none()),
    st.tuples(st.sampled_from(["lose", "resign", "elect", "settle"]), st.none(), st.none()),
)


class Model:
    """The world, with the records that the log has answered up to the first that it has not."""

    def __init__(self) -> None:
        self.world = ToyWorld(loads_later=True)
        self.world.log.hold()
        self.epoch = 0
        self.answers: list[Answer] = []
        self.committed: list[bool] = []
        """By offset, as far as the log has answered."""
        self.offsets: list[int] = []
        """Of the appends that are held, oldest first."""

    def put(self, key: str, value: str | None, *, refused: bool = False, again: bool = False) -> None:
        world = self.world
        if world.phase() is not Phase.ACTIVE:
            return
        coordinator = world.coordinator()
        if refused:
            world.log.fail(ErrorCode.MESSAGE_TOO_LARGE)
        else:
            self.offsets.append(world.log.ends[0])
            self.committed.append(False)
        answer = Answer()
        self.answers.append(answer)

        def done(error: PeerError | None) -> None:
            answer(error)
            if again and error is None:
                self.put(key, "4")

        def committed(base_offset: int) -> None:
            assert base_offset == world.log.records(0)[base_offset].offset
            coordinator.state.apply(key, value)

        coordinator.write([(key.encode(), None if value is None else value.encode())], committed, done)

    def do(self, name: str, first: str | int | None, second: str | None) -> None:
        world = self.world
        match name, first:
            case (("put" | "put in answer" | "refuse"), str(key)):
                self.put(key, second, refused=name == "refuse", again=name == "put in answer")
            case "answer", int(index):
                if index < len(self.offsets):
                    self._answer(index)
            case "lose", _:
                if self.offsets:
                    self.offsets.pop(0)
                    world.log.answer_held(0, LOST)
            case "after writes", _:
                if world.phase() is not None:
                    self.answers.append(Answer())
                    world.coordinator().after_writes(self.answers[-1])
            case "resign", _:
                world.runtime.resigned(0)
            case "elect", _:
                self.epoch += 1
                world.elect(epoch=self.epoch)
            case _:
                world.clock.settle()
        self.check()

    def _answer(self, index: int) -> None:
        self.committed[self.offsets.pop(index)] = True
        self.world.log.answer_held(index)

    def check(self) -> None:
        world = self.world
        if world.phase() is not Phase.ACTIVE:
            return
        coordinator = world.coordinator()
        expected: dict[str, str] = {}
        first = self.loaded_until if coordinator is self.loaded_by else world.log.ends[0]
        self.loaded_by, self.loaded_until = coordinator, first
        for record in world.log.records(0):
            if record.offset >= first and not self.committed[record.offset]:
                break
            assert record.key is not None
            expected.pop(record.key.decode(), None)
            if record.value is not None:
                expected[record.key.decode()] = record.value.decode()
        assert world.values == expected

    loaded_by: object = None
    loaded_until = 0
    """What was in the log when the coordinator was loaded counts for it."""


@given(st.lists(ACTIONS, max_size=60))
def test_memory_is_a_replay_of_what_is_committed_and_each_write_is_answered_once(
    actions: list[tuple[str, str | int | None, str | None]],
) -> None:
    logging.disable(logging.CRITICAL)
    try:
        model = Model()
        model.do("elect", None, None)
        model.do("settle", None, None)
        for action in actions:
            model.do(*action)
        while model.offsets:
            model._answer(0)
            model.check()
        model.world.runtime.close()
    finally:
        logging.disable(logging.NOTSET)
    assert WAITS not in [answer.code for answer in model.answers]
    assert model.world.budget.held == 0
