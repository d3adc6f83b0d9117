"""The name of a tier belongs to one job and topic: another load is refused, and counts can be taken back. Without Spark."""

import re
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from moldau.audit.auditor import Auditor, AuditorOptions
from moldau.audit.follow import read_audit
from moldau.audit.publishing import TierTakenError
from moldau.audit.reconcile import reconcile
from moldau.audit.rules import Rules
from moldau.audit.tiers import TierCounts
from moldau.audit.verdicts import Report, Verdict
from moldau.cli.application import application
from moldau.client import Producer
from moldau.client.cluster import Cluster
from moldau.lake.counts import COUNTS_KEY, counts_to_json
from moldau.lake.loading import audit as load_audit
from moldau.lake.loading.audit import Claim, OtherTierError, _publish_claim, claimed, own_tier, publish_counts
from moldau.lake.loading.job import LoadJob
from moldau.lake.loading.load import LoadResult, load
from moldau.lake.tables.committing import commit
from moldau.lake.tables.data_files import DAY, TIME_FIELDS
from moldau.lake.tables.format import Snapshot, TableChange
from moldau.lake.tables.opening import format_named, open_or_create
from moldau.testing.broker import Broker
from moldau.tracking.audit_record import AUDIT_TOPIC, AuditRecord, ensure_audit_topic
from moldau.tracking.clock import now_ms
from moldau.tracking.counts import Count, CountKey
from support.load_world import LoadWorld
from support.tasks_here import TasksHere

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as found:
        yield found


@pytest.fixture(scope="module")
def registry() -> Iterator[Broker]:
    with Broker(registry=True) as found:
        yield found


class Load:
    """A job's table, and what it counts: ten events with each step."""

    def __init__(self, broker: Broker, directory: Path, topic: str, name: str = "warehouse", tier: str = "lake") -> None:
        self.job = LoadJob(
            name, broker.bootstrap_servers, topic, str(directory / name), str(directory / "dead" / name), registry="http://r", tier=tier
        )
        self.tables = format_named("delta")
        self.key = CountKey(topic, 0, "dc", "service", "host", "00000000000000ff")

    @property
    def table(self) -> Snapshot:
        return open_or_create(self.tables, self.job.table, pa.schema([("n", pa.int64()), *TIME_FIELDS]), [DAY], "")

    def own_tier(self) -> Claim:
        with Cluster(self.job.bootstrap_servers) as cluster:
            return own_tier(self.job, self.table.id, cluster)

    def step(self, number: int) -> None:
        """As a load does it: claim, commit, publish, mark."""
        claim = self.own_tier()
        self.commit(number)
        assert publish_counts(self.job, self.tables, claim.epoch, now_ms()) is None

    def commit(self, number: int) -> None:
        """A version with counts that nobody was told of."""
        words = {
            "moldau.job": self.job.name,
            "moldau.topic": self.job.topic,
            COUNTS_KEY: counts_to_json({self.key: count(number)}, 0, 0),
        }
        commit(self.tables, self.job.table, TableChange("LOAD", metadata=words))


def count(number: int) -> Count:
    return Count(10, 100, 1 << number, number, number)


def sent(broker: Broker, load: Load, steps: int) -> None:
    """What a producer says that it has sent; so long ago that the window is over."""
    ensure_audit_topic(broker.bootstrap_servers)
    with Producer(broker.bootstrap_servers) as producer:
        for number in range(steps):
            record = AuditRecord.of_counts("producer", load.key, count(number), time_ms=1)
            producer.send(AUDIT_TOPIC, record.to_bytes(), key=record.record_key).result()


def verdict(broker: Broker, topic: str, into: TierCounts | None = None) -> Verdict:
    """Of the only window."""
    with Cluster(broker.bootstrap_servers) as cluster:
        report: Report = reconcile(read_audit(cluster, into), Rules(now_ms() + 10, grace_ms=0, producer_timeout_ms=0, topics={topic}))
    (pair,) = [each for each in report.pairs if each.lower_tier == "lake"]
    return pair.verdict


def run(broker: Broker, *arguments: str) -> Result:
    return CliRunner().invoke(application, ["audit", *arguments, "--bootstrap", broker.bootstrap_servers])


def test_a_second_job_under_the_same_tier_is_refused_with_the_way_out(broker: Broker, tmp_path: Path) -> None:
    first, second = Load(broker, tmp_path, "orders"), Load(broker, tmp_path, "orders", "other")
    sent(broker, first, 2)
    first.step(0)
    with pytest.raises(
        OtherTierError, match=r"^tier lake counts topic orders for job warehouse, table .* --tier; .*audit forget --tier lake"
    ):
        second.step(0)
    first.step(1)
    assert verdict(broker, "orders") is Verdict.COMPLETE
    Load(broker, tmp_path, "orders", "third", tier="lake-2").step(0)
    Load(broker, tmp_path, "returns", "other").step(0)


def test_a_table_that_is_loaded_anew_counts_after_its_counts_were_taken_back(broker: Broker, tmp_path: Path) -> None:
    """Who has followed the audit all the time and who reads it anew say the same."""
    first, again = Load(broker, tmp_path / "lost", "anew"), Load(broker, tmp_path / "new", "anew")
    sent(broker, first, 2)
    first.step(0)
    first.step(1)
    with Cluster(broker.bootstrap_servers) as cluster:
        followed = read_audit(cluster)
    with pytest.raises(OtherTierError):
        again.step(0)
    done = run(broker, "forget", "--tier", "lake", "--topic", "anew")
    assert (done.exit_code, done.output) == (0, "forgot: tier lake, topic anew, 20 events\n")
    again.step(0)
    again.step(1)
    assert {verdict(broker, "anew"), verdict(broker, "anew", followed)} == {Verdict.COMPLETE}
    with pytest.raises(OtherTierError):
        first.step(2)


def test_the_job_that_goes_on_publishes_the_counts_of_its_whole_table_again(broker: Broker, tmp_path: Path) -> None:
    load = Load(broker, tmp_path, "goes-on")
    sent(broker, load, 3)
    load.step(0)
    load.step(1)
    for _ in range(2):
        assert run(broker, "forget", "--tier", "lake", "--topic", "goes-on").exit_code == 0
    load.step(2)
    assert verdict(broker, "goes-on") is Verdict.COMPLETE
    known = claimed(load.job, load.table.id)
    assert known is not None
    assert known.epoch


def test_counts_that_are_on_their_way_while_they_are_taken_back_are_taken_back_too(broker: Broker, tmp_path: Path) -> None:
    """A load takes minutes from its claim to its counts. What it says then, under the claim of before, counts nothing and marks nothing:
    its next load publishes all of the table again."""
    load = Load(broker, tmp_path, "on-its-way")
    sent(broker, load, 3)
    load.step(0)
    before = load.own_tier()
    load.commit(1)
    assert run(broker, "forget", "--tier", "lake", "--topic", "on-its-way").exit_code == 0
    assert publish_counts(load.job, load.tables, before.epoch, now_ms()) is None
    with Cluster(broker.bootstrap_servers) as cluster:
        found = read_audit(cluster)
    assert not found.has_counts_of("lake", "on-its-way"), "a mark alone would make all of it a loss"
    load.step(2)
    assert verdict(broker, "on-its-way") is Verdict.COMPLETE


def test_an_audit_topic_that_was_made_anew_has_no_claims_of_before(broker: Broker, tmp_path: Path) -> None:
    """Who has a note of his claim in the old one does not own what another one claimed first in the new one; with both there it is whose
    came first."""
    mine, other = Load(broker, tmp_path, "made-anew"), Load(broker, tmp_path, "made-anew", "other")
    mine.step(0)
    _publish_claim(other.job, other.table.id)
    mine.step(1)
    note = next(Path(mine.job.table, "_moldau").glob("tier-*.json"))
    written = note.read_text()
    note.write_text(re.sub(r'"audit": "[0-9a-f]+"', f'"audit": "{"11" * 16}"', written))
    mine.step(2)
    assert run(broker, "forget", "--tier", "lake", "--topic", "made-anew").exit_code == 0
    _publish_claim(other.job, other.table.id)
    note.write_text(re.sub(r'"audit": "[0-9a-f]+"', f'"audit": "{"11" * 16}"', written))
    with pytest.raises(OtherTierError):
        mine.step(3)


def test_of_two_first_loads_at_once_one_is_refused(broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Both have seen that nobody owns the tier: the first claim in the log counts."""
    one, two = Load(broker, tmp_path, "race"), Load(broker, tmp_path, "race", "two")
    publish = load_audit._publish_claim

    def slowly(job: LoadJob, table_id: str) -> None:
        monkeypatch.setattr(load_audit, "_publish_claim", publish)
        two.step(0)
        publish(job, table_id)

    monkeypatch.setattr(load_audit, "_publish_claim", slowly)
    with pytest.raises(OtherTierError, match="for job two"):
        one.step(0)


def test_an_auditor_and_a_load_have_no_name_in_common(broker: Broker, tmp_path: Path) -> None:
    Load(broker, tmp_path, "mine").step(0)
    with pytest.raises(TierTakenError, match="an auditor needs another --tier"):
        Auditor(broker.bootstrap_servers, AuditorOptions("lake")).run(once=True)
    broker.create_topic("counted", 1)
    with Producer(broker.bootstrap_servers) as producer:
        producer.send("counted", b"x").result()
    Auditor(broker.bootstrap_servers, AuditorOptions("local")).run(once=True)
    with pytest.raises(OtherTierError, match="tier local is an auditor's"):
        Load(broker, tmp_path, "counted", "wrong", tier="local").step(0)


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--tier", "producer"), 2, "tier producer is that of the producers themselves"),
        (("--tier", "nobody"), 2, "Invalid value for --tier: tier nobody has no counts"),
        (("--tier", "lake", "--topic", "typo"), 2, "tier lake has no counts of topic typo, only of"),
    ],
)
def test_what_cannot_be_forgotten(broker: Broker, tmp_path: Path, arguments: tuple[str, ...], code: int, said: str) -> None:
    Load(broker, tmp_path, f"forget-{arguments[-1]}").step(0)
    done = run(broker, "forget", *arguments)
    assert (done.exit_code, said in done.output) == (code, True)


def test_a_dry_run_changes_nothing(broker: Broker, tmp_path: Path) -> None:
    Load(broker, tmp_path, "dry").step(0)
    for _ in range(2):
        assert (
            run(broker, "forget", "--tier", "lake", "--topic", "dry", "--dry-run").output
            == "would forget: tier lake, topic dry, 10 events\n"
        )


class Loaded:
    """A topic with one tracked event, and a load of it under tier lake that has nothing left to do."""

    def __init__(self, broker: Broker, directory: Path) -> None:
        self.world = LoadWorld(broker, directory)
        self.world.publish(1)
        assert load(TasksHere(), self.world.job).rows == 1
        assert self.world.verdict() == "complete"

    def again(self, *, mark: bool) -> LoadResult:
        result = load(TasksHere(), self.world.job, mark=mark)
        assert (result.ranges, result.rows, result.audit_error) == ((), 0, None)
        return result

    def marked_ms(self) -> int:
        """Up to when the tier has said that it counted everything."""
        return self.world.audit().counted_ms["lake", self.world.topic]


@pytest.mark.parametrize("taken_by", ["another job", "an auditor"])
def test_a_first_load_that_is_refused_for_its_tier_makes_nothing(registry: Broker, tmp_path: Path, taken_by: str) -> None:
    """Claim: the refusal comes before the table is made, and before its folder."""
    world = LoadWorld(registry, tmp_path / "lake")
    world.publish(1)
    job = world.job
    if taken_by == "another job":
        Load(registry, tmp_path / "other", world.topic, "other").step(0)
    else:
        job = world.other(tier="counted")
        Auditor(registry.bootstrap_servers, AuditorOptions("counted", re.compile(world.topic))).run(once=True)
    with pytest.raises(OtherTierError, match=f"counts topic {world.topic}"):
        load(TasksHere(), job)
    assert not (tmp_path / "lake").exists()


def test_a_load_with_nothing_new_says_that_all_is_counted_where_a_mark_is_due(registry: Broker, tmp_path: Path) -> None:
    loaded = Loaded(registry, tmp_path)
    marked_ms = loaded.marked_ms()
    loaded.again(mark=False)
    assert loaded.marked_ms() == marked_ms, "that is asked every second or so, and costs no look at the audit"
    loaded.again(mark=True)
    assert loaded.marked_ms() > marked_ms


def test_a_load_with_nothing_new_asks_the_audit_before_its_mark_and_publishes_what_was_taken_back(registry: Broker, tmp_path: Path) -> None:
    """A mark under the counts of before would make all that the table holds a loss."""
    loaded = Loaded(registry, tmp_path)
    topic = loaded.world.topic
    assert run(registry, "forget", "--tier", "lake", "--topic", topic).exit_code == 0
    loaded.again(mark=False)
    assert not loaded.world.audit().has_counts_of("lake", topic), "without a mark nothing is said"
    loaded.again(mark=True)
    assert loaded.world.audit().has_counts_of("lake", topic)
    assert loaded.world.verdict() == "complete"


def test_a_load_with_nothing_new_marks_nothing_under_a_tier_that_another_load_has_taken(registry: Broker, tmp_path: Path) -> None:
    loaded = Loaded(registry, tmp_path)
    topic = loaded.world.topic
    assert run(registry, "forget", "--tier", "lake", "--topic", topic).exit_code == 0
    Load(registry, tmp_path, topic, "other").step(0)
    marked_ms = loaded.marked_ms()
    with pytest.raises(OtherTierError, match=f"tier lake counts topic {topic} for job other"):
        load(TasksHere(), loaded.world.job)
    assert loaded.marked_ms() == marked_ms
    loaded.again(mark=False)
