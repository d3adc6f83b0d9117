"""One process runs a job: the second is refused by name, a silent one is replaced, and one that was only slow is fenced. Without Spark."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from moldau.lake.writing.transactions import TransactionRequests
from moldau.streams.claim import SILENT_S, JobClaim
from moldau.streams.errors import JobFencedError, JobTakenError, StreamError
from moldau.streams.generations import JobGenerations, encode_generations
from moldau.streams.operator import StreamOperator
from moldau.streams.reports import JobReport, JobState, QueryReport, encode_report, generations_key, process_key
from moldau.streams.state_topic import StateTopic
from moldau.testing.broker import Broker

pytestmark = pytest.mark.system


class Hands:
    """A clock that moves when it is slept on; meanwhile something may happen."""

    def __init__(self, during: Callable[[], object] = lambda: None) -> None:
        self.now = 0.0
        self._during = during

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self._during()


Claims = Callable[..., JobClaim]


@pytest.fixture
def claim(broker: Broker) -> Iterator[Claims]:
    """Makes claims; their connections are closed."""
    topics: list[StateTopic] = []

    def make(job: str, hands: Hands | None = None, generation: int = 1) -> JobClaim:
        hands = hands or Hands()
        topics.append(StateTopic(broker.bootstrap_servers))
        return JobClaim(topics[-1], job, "/data", generation, monotonic=lambda: hands.now, sleep=hands.sleep)

    yield make
    for each in topics:
        each.close()


def pretend(broker: Broker, report: JobReport, **changes: object) -> JobReport:
    """The last report of a process comes from elsewhere."""
    changed = replace(report, **changes)  # type: ignore[arg-type]
    topic = StateTopic(broker.bootstrap_servers)
    topic.write({process_key(report.job, report.instance): encode_report(changed)})
    topic.close()
    return changed


def test_a_second_start_is_refused_while_the_first_reports(broker: Broker, claim: Claims) -> None:
    first = claim("twice")
    first.take()
    second = claim("twice", Hands(lambda: first.write([])))
    with pytest.raises(
        JobTakenError, match=rf"job twice is run by process {os.getpid()} on .*, started at .* UTC, which reported just now; moldau"
    ):
        second.take()
    first.confirm()


def test_a_process_that_is_silent_is_replaced_and_fenced_if_it_was_only_slow(broker: Broker, claim: Claims) -> None:
    slow = claim("slow")
    slow.take()
    slow.write([QueryReport("counts", run="r", batch=7)])
    hands = Hands()
    other = claim("slow", hands)
    other.take()
    assert hands.now >= 10, "it was waited for"
    assert other.before is not None
    assert [each.batch for each in other.before.queries] == [7]
    acts: tuple[Callable[[], object], ...] = (slow.confirm, lambda: slow.write([]))
    for act in acts:
        with pytest.raises(JobFencedError, match=r"job slow was taken over by process .*, since .* UTC; this is process"):
            act()
    other.write([])
    assert other.report.epoch == 2


def test_a_process_that_has_stopped_is_replaced_at_once(broker: Broker, claim: Claims) -> None:
    first = claim("stopped")
    first.take()
    first.write([], JobState.STOPPED)
    hands = Hands()
    claim("stopped", hands).take()
    assert hands.now == 0


def test_a_process_that_was_killed_on_this_host_is_replaced_at_once(broker: Broker, claim: Claims) -> None:
    """Its number is free. The same number on another host may be in use there."""
    ended = subprocess.Popen([sys.executable, "-S", "-c", ""])
    ended.wait()
    first = claim("killed")
    first.take()
    for changes, waits in (({"pid": ended.pid}, False), ({"pid": ended.pid, "host": "elsewhere"}, True)):
        report = pretend(broker, first.report, **changes)
        hands = Hands()
        first = claim("killed", hands)
        first.take()
        assert (hands.now > 0) is waits
        assert first.before == report


def test_an_order_to_stop_reaches_the_process_that_it_was_for(broker: Broker, claim: Claims) -> None:
    """It learns of it with its next report; the process after it does not."""
    first = claim("ordered")
    first.take()
    assert not first.write([])
    orders: list[bool] = []

    def report() -> None:
        orders.append(first.write([]) is not None)
        if orders[-1]:
            first.write([], JobState.STOPPED)

    hands = Hands(report)
    operator = StreamOperator(broker.bootstrap_servers, monotonic=lambda: hands.now, sleep=hands.sleep)
    assert operator.stop("ordered", 30).state is JobState.STOPPED
    assert orders == [True]
    assert operator.stop("ordered", 30).state is JobState.STOPPED, "it has"
    second = claim("ordered")
    second.take()
    assert not second.write([])
    assert "ordered" in operator.jobs()
    idle = Hands()
    with pytest.raises(StreamError, match="no process has run a job unknown"):
        operator.status("unknown")
    waiting = StreamOperator(broker.bootstrap_servers, monotonic=lambda: idle.now, sleep=idle.sleep)
    with pytest.raises(StreamError, match="has not stopped within 1 s; it stops at the end of its batch"):
        waiting.stop("ordered", 1)
    begun = idle.now
    with pytest.raises(StreamError, match="was not stopped: it has reported nothing for"):
        waiting.stop("ordered", 600)
    assert idle.now < begun + 2 * SILENT_S, "nothing is waited for that does not come"
    waiting.close()
    operator.close()


@pytest.mark.parametrize("where", ["take_over", "write"])
def test_of_two_that_start_at_once_the_later_one_is_the_jobs(
    where: str, broker: Broker, claim: Claims, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes the job over when the first one has done so and has not written yet, or is about to write. The first one is refused, leaves
    no record, and removes none of the second; what the process before has reported is known to the second."""
    job = f"both-{where}"
    former = claim(job)
    former.take()
    former.write([QueryReport("counts", run="r", batch=7)], JobState.STOPPED)
    first, second = claim(job), claim(job)
    kind = TransactionRequests if where == "take_over" else StateTopic
    act: Callable[..., object] = getattr(kind, where)

    def overtaken(*given: object) -> object:
        monkeypatch.undo()
        if where == "write":
            second.take()
            return act(*given)
        made = act(*given)
        second.take()
        return made

    monkeypatch.setattr(kind, where, overtaken)
    with pytest.raises(JobTakenError, match=rf"job {job} was taken over by"):
        first.take()
    second.confirm()
    topic = StateTopic(broker.bootstrap_servers)
    assert [each.instance for each in topic.read().processes(job)] == [second.report.instance]
    topic.close()
    for each in (second.before, second.report):
        assert each is not None
        assert [(query.run, query.batch) for query in each.queries] == [("r", 7)]


def test_a_process_of_a_former_generation_writes_nothing(broker: Broker, claim: Claims) -> None:
    """It is fenced by the process that switches; one that begins as the former generation all the same ends with its first report."""
    old = claim("switched")
    old.take()
    old.write([QueryReport("counts", run="r", batch=7)], JobState.STOPPED, settled=True)
    beside = claim("switched@2", generation=2)
    beside.take()
    beside.write([QueryReport("counts", run="s", batch=3)])
    switching = claim("switched")
    switching.take()
    assert switching.report.settled, "a process that dies now leaves what a switch needs"
    record = encode_generations(JobGenerations(current=2, last=2))
    switching.switch({generations_key("switched"): record}, 2, "/data/@2")
    with pytest.raises(JobFencedError, match="job switched was taken over by process"):
        old.confirm()
    switching.write([QueryReport("counts", run="s", batch=3)], JobState.STOPPED)
    late = claim("switched")
    late.take()
    with pytest.raises(JobFencedError, match=r"job switched has switched to generation 2; this is process .* of generation 1, which stops"):
        late.write([])


def test_a_generation_that_has_become_current_continues_its_counts(broker: Broker, claim: Claims) -> None:
    """Of the process that made it and died before it reported as the job. A check looks at the same report as the start after it."""
    old = claim("died")
    old.take()
    old.write([QueryReport("counts", run="r", batch=7)], JobState.STOPPED)
    beside = claim("died@2", generation=2)
    beside.take()
    beside.write([QueryReport("counts", run="s", batch=3)], JobState.STOPPED)
    new = claim("died", generation=2)
    for begin in (new.look, new.take):
        begin()
        assert new.before is not None
        assert [(each.run, each.batch) for each in new.before.queries] == [("s", 3)]
    operator = StreamOperator(broker.bootstrap_servers)
    assert [each for each in operator.jobs() if each.startswith("died")] == ["died"]
    operator.close()
