"""A coordinator of values by key, over a list in place of its topic: the smallest state that a runtime can serve.

world = ToyWorld(); world.elect()
world.put("k", "1")                # -> Answer, whose `error` is None once it is committed
world.values                       # what is applied: {"k": "1"}
world.log.hold(); ...; world.log.release()
"""

from collections.abc import Sequence

from moldau.broker.admission.state import Account, Budget
from moldau.broker.coordinators.partition_coordinator import PartitionCoordinator, Phase
from moldau.broker.coordinators.runtime import CoordinatorRuntime
from moldau.broker.coordinators.state_log import LoadedBatch
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Steps
from moldau.testing.clock import FakeClock
from support.state_logs import ListStateLog

TOPIC = "__toy"
WAITS = ErrorCode.UNKNOWN_SERVER_ERROR
"""Stands for an answer that has not come."""


class Answer:
    """Takes the answer to one request."""

    def __init__(self, name: str = "", order: list[str] | None = None) -> None:
        self.code = WAITS
        self._name = name
        self._order = [] if order is None else order

    def __call__(self, error: PeerError | None) -> None:
        self.code = _once(self.code, ErrorCode.NONE if error is None else error.code)
        self._order.append(f"{self._name} answered {self.code.name}")


def _once(before: ErrorCode, code: ErrorCode) -> ErrorCode:
    if before is not WAITS:
        raise RuntimeError("answered twice")
    return code


class ToyState:
    """A :class:`moldau.broker.coordinators.partition_coordinator.CoordinatorState`: a value for each key."""

    def __init__(self, coordinator: PartitionCoordinator["ToyState"], budget: Budget, order: list[str]) -> None:
        self.coordinator = coordinator
        self.values: dict[str, str] = {}
        self.account = Account(budget)
        self.waiting: list[Answer] = []
        self.steps_to_finish = self.steps_to_release = 0
        self._budget = budget
        self._order = order

    def replay(self, batch: LoadedBatch) -> None:
        for record in batch.records:
            assert record.key is not None
            self.apply(record.key.decode(), None if record.value is None else record.value.decode())

    def finish_replay(self) -> Steps:
        for _ in range(self.steps_to_finish):
            yield None

    def loaded(self) -> None:
        self._order.append(f"loaded {sorted(self.values.items())}")

    def resigned(self, error: PeerError) -> Steps:
        self._order.append(f"resigned {error.code.name}")
        for answer in self.waiting:
            answer(error)
        return self._release()

    def _release(self) -> Steps:
        for _ in range(self.steps_to_release):
            yield None
        self.account.close()

    def memory(self) -> Sequence[Budget]:
        return [self._budget]

    def apply(self, key: str, value: str | None) -> None:
        if self.values.pop(key, None) is not None:
            self.account.add(-1)
        if value is not None:
            self.values[key] = value
            self.account.add(1)


class ToyWorld:
    """See the module."""

    def __init__(self, *, partitions: int = 1, limit: int = 1000, log: ListStateLog | None = None, loads_later: bool = False) -> None:
        self.clock = FakeClock()
        self.log = log or ListStateLog(partitions)
        self.log.clock = self.clock if loads_later else None
        self.limit = limit
        self.budget = Budget("toy.memory.max.bytes", lambda: self.limit, self.clock.monotonic)
        self.order: list[str] = []
        """What happened to states and answers."""
        self.steps_to_finish = self.steps_to_release = 0
        self.runtime: CoordinatorRuntime[ToyState] = CoordinatorRuntime(TOPIC, self.log, self.clock, self._make)

    def _make(self, coordinator: PartitionCoordinator[ToyState]) -> ToyState:
        state = ToyState(coordinator, self.budget, self.order)
        state.steps_to_finish, state.steps_to_release = self.steps_to_finish, self.steps_to_release
        return state

    def elect(self, epoch: int = 1, partition: int = 0) -> None:
        self.runtime.elected(partition, epoch)

    def leave(self, *pairs: tuple[str, str | None]) -> None:
        """Records of an earlier coordinator."""
        for key, value in pairs:
            self.log.append(self.log.partition_for(key), [(key.encode(), None if value is None else value.encode())], lambda _: None)

    def coordinator(self, partition: int = 0) -> PartitionCoordinator[ToyState]:
        found = self.runtime.coordinator(partition)
        assert found is not None
        return found

    @property
    def values(self) -> dict[str, str]:
        """What is applied in partition 0."""
        return self.coordinator().state.values

    def phase(self, partition: int = 0) -> Phase | None:
        return self.runtime.phase(partition)

    def put(self, key: str, value: str | None, *, through: PartitionCoordinator[ToyState] | None = None) -> Answer:
        """Write a value through a coordinator, the key's unless one is given."""
        coordinator = through or self.runtime.coordinator_of(key)
        answer = Answer(f"{key}={value}", self.order)

        def committed(_base_offset: int) -> None:
            self.order.append(f"{key}={value} applied")
            coordinator.state.apply(key, value)

        coordinator.write([(key.encode(), None if value is None else value.encode())], committed, answer)
        return answer

    def refusal(self, key: str = "k") -> ErrorCode:
        """Why the key is not served; NONE if it is."""
        try:
            self.runtime.coordinator_of(key)
        except PeerError as error:
            return error.code
        return ErrorCode.NONE
