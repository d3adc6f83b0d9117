"""``moldau audit report`` and ``watch``: what they print, how they end, and what they refuse."""

import json
import re
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from moldau.audit import auditor, follow
from moldau.audit.tiers import OWN_SOURCE, TierCounts, UnreadableRecord
from moldau.cli import audit_forget, audit_report, audit_run
from moldau.cli.application import application
from moldau.client.errors import ConnectionLostError
from moldau.lake.table_guids import NoTableError, check_directory
from moldau.model.host_port import Address
from moldau.tracking.audit_record import AuditRecord, Gap
from moldau.tracking.counts import Count, CountKey
from moldau.tracking.latencies import Latencies, bucket_of
from support.audit_events import MINUTE, NOON, Host
from support.audit_ledger import START, Ledger, events

EWR = Host("ewr-1", "ewr", instance=b"inst-ewr")


@pytest.fixture
def ledger(monkeypatch: pytest.MonkeyPatch) -> Ledger:
    """What the commands read, instead of the audit topic of a broker."""
    ledger = Ledger()

    def read(_: object, into: TierCounts | None = None, *, source: str = OWN_SOURCE) -> TierCounts:
        return ledger.found

    monkeypatch.setattr(follow, "read_audit", read)
    for command in (audit_forget, audit_report, audit_report):
        monkeypatch.setattr(command, "open_cluster", lambda *_: nullcontext())
    return ledger


def run(*arguments: str) -> Result:
    return CliRunner().invoke(application, ["audit", *arguments])


def two_windows(ledger: Ledger, lost: int = 0) -> None:
    values = [*events(EWR, 1000), *events(EWR, 20, start_ms=START + 10 * MINUTE, first=5_000)]
    ledger.opens(EWR).wait(30 * MINUTE).counts("producer", values).closes(EWR)
    ledger.counts("local", values[lost:]).marks("local")


def test_a_loss_is_a_line_with_the_host_and_exit_code_4(ledger: Ledger) -> None:
    """The summary says how much and since when, the table below where."""
    two_windows(ledger, lost=3)
    ledger.say("counts", "local", CountKey("departures", NOON, "", "", "", ""), Count(2, 44, 0, NOON, NOON))
    ledger.found.unreadable.append(UnreadableRecord(4, 17, "not JSON"))
    done = run("report")
    lines = done.output.splitlines()
    assert done.exit_code == 4
    assert lines[0].split("  ")[0] == "TOPIC"
    numbers = ["2", "1,020", "1,017", f"{checksum_of(ledger):016x}"]
    assert lines[1].split() == ["departures", "producer", ">", "local", *numbers, "loss", "(1", "of", "2", "windows)", "-"]
    fault = next(line for line in lines if "ewr-1" in line)
    assert fault.split()[:6] == ["departures", "2013-01-01T12:00:00Z", "producer", ">", "local", "loss"]
    assert fault.endswith("1,000    997  3 of 1,000 missing")
    assert "untracked in topic departures: 2 records of 44 bytes by tier local" in lines
    assert "unreadable: partition _audit-4 at offset 17: not JSON" in lines


def checksum_of(ledger: Ledger) -> int:
    return sum(told.count.checksum for told in ledger.found.counts["local"].values()) % 2**64


def test_complete_is_exit_code_0_and_has_a_watermark(ledger: Ledger) -> None:
    two_windows(ledger)
    done = run("report", "--complete")
    assert (done.exit_code, len(done.output.splitlines())) == (0, 2)
    assert done.output.split()[-1] == "2013-01-01T12:20:00Z"
    assert "ewr-1" in run("report", "--windows").output
    assert run("report", "--since", "2013-01-01T12:10:00Z").output.splitlines()[1].split()[4] == "1"


def test_json_has_everything(ledger: Ledger) -> None:
    """One document: verdict, topics, windows with their sources, numbers as numbers, checksums as 16 digits."""
    two_windows(ledger, lost=3)
    done = run("report", "--json")
    printed = json.loads(done.output)
    assert (done.exit_code, printed["verdict"], printed["complete"], printed["tiers"]) == (4, "loss", False, ["producer", "local"])
    (topic,) = printed["topics"]
    assert (topic["windows"], topic["upper"]["count"], topic["completion_watermark_ms"]) == ({"loss": 1, "complete": 1}, 1020, None)
    first, second = printed["windows"]
    assert (first["window_start_ms"], first["verdict"], second["sources"]) == (NOON, "loss", [])
    (source,) = first["sources"]
    assert (source["host"], source["instance"], source["note"]) == ("ewr-1", b"inst-ewr".hex(), "3 of 1,000 missing")
    assert source["lower"] == {
        "count": 997, "bytes": 997 * 69, "checksum": source["lower"]["checksum"], "min_time_ms": START + 30, "max_time_ms": START + 9_990,
    }  # fmt: skip


def test_what_is_not_decided_has_its_own_exit_code(ledger: Ledger) -> None:
    """A tier in its grace has lost nothing, and is not complete either. What is complete may change within it: `--complete`."""
    two_windows(ledger, lost=3)
    assert run("report", "--grace", "local=900000000").exit_code == 3
    ledger.found = Ledger().found
    ledger.counts("producer", events(EWR, 5)).counts("local", events(EWR, 5)).wait(30 * MINUTE)
    patient = ("report", "--grace", "local=900000000")
    assert (run(*patient).exit_code, run(*patient, "--complete").exit_code) == (0, 3)


def test_what_is_not_due_says_when_it_is(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Claim: equal counts are due at the window's end, others a grace after that or after the last change; JSON has it in milliseconds."""
    monkeypatch.setattr("moldau.tracking.clock.now_ms", lambda: START + 5 * MINUTE)
    other = Host("ewr-2", "ewr", instance=b"inst-two")
    ledger.counts("producer", events(EWR, 5)).counts("local", events(EWR, 5))
    assert run("report").output.splitlines()[1].split("  ")[-2:] == ["not due until 2013-01-01T12:10:00Z", "-"]
    ledger.counts("producer", events(other, 7))
    done = run("report")
    assert done.exit_code == 3
    assert [line.partition("not due until ")[2].split()[0] for line in done.output.splitlines() if "not due" in line] == [
        "2013-01-01T12:12:00Z",
        "2013-01-01T12:10:00Z",
        "2013-01-01T12:12:00Z",
    ]
    printed = json.loads(run("report", "--json").output)
    due_ms = NOON + 12 * MINUTE
    assert (printed["verdict"], printed["topics"][0]["due_ms"], printed["windows"][0]["due_ms"]) == ("not yet due", due_ms, due_ms)
    assert {each["host"]: each["due_ms"] for each in printed["windows"][0]["sources"]} == {"ewr-1": NOON + 10 * MINUTE, "ewr-2": due_ms}
    monkeypatch.setattr("moldau.tracking.clock.now_ms", lambda: due_ms)
    assert "not due" not in run("report").output


def test_latencies_are_shown_by_tier_and_window(ledger: Ledger) -> None:
    """Claim: for all windows of a topic together, then for each; in JSON in milliseconds, and in the text only if asked for."""
    two_windows(ledger)
    plain = run("report").output
    assert run("report", "--latency").output == plain + "no tier has published how long events were on their way to it\n"
    for tier, bucket in (("local", bucket_of(2_000)), ("lake", bucket_of(10_000))):
        for start_ms in (NOON, NOON + 10 * MINUTE):
            latencies = Latencies.of({bucket: 99, bucket_of(60_000): 1})
            ledger.found.take(AuditRecord.of_latencies(tier, "departures", start_ms, latencies, time_ms=START))
    assert run("report").output == plain
    lines = run("report", "--latency").output.removeprefix(plain).splitlines()
    assert lines[1].split() == ["TOPIC", "WINDOW", "TIER", "EVENTS", "P50", "P95", "P99"]
    assert [line.split()[:5] for line in lines[2:]] == [
        ["departures", "all", "local", "200", "1.921"],
        ["departures", "2013-01-01T12:00:00Z", "local", "100", "1.921"],
        ["departures", "2013-01-01T12:10:00Z", "local", "100", "1.921"],
    ], "the lake is no tier of this report: it has counted nothing"
    document = json.loads(run("report", "--json").output)
    assert document["latencies"][0] == {
        "topic": "departures", "tier": "local", "window_start_ms": None, "count": 200, "p50_ms": 1921, "p95_ms": 2037, "p99_ms": 2047,
    }  # fmt: skip
    assert len(json.loads(run("report", "--json", "--since", "2013-01-01T12:10:00Z").output)["latencies"]) == 2


def test_nothing_to_compare_is_an_error(ledger: Ledger) -> None:
    """Whoever asks before anybody has counted is told so, and does not take silence for completeness."""
    assert (run("report").exit_code, run("report").output[:47]) == (1, "Error: no tier has published counts, so there i")
    assert run("report", "--tiers", "producer,local").exit_code == 1
    ledger.opens(EWR).counts("producer", events(EWR, 5))
    assert run("report").output.startswith("Error: only tier producer has published counts")
    assert run("report", "--tiers", "producer,local", "--only", "local=.*").exit_code == 3


def test_what_was_asked_for_and_is_not_there_is_not_complete(ledger: Ledger) -> None:
    """A topic without counts, or none that two tiers count: the report says so, in JSON too, and with --complete it is exit code 3."""
    two_windows(ledger)
    done = run("report", "--topic", "typo", "--complete")
    assert (done.exit_code, done.output.splitlines()) == (3, ["nothing about topic typo: no tier has counts of it"])
    assert run("report", "--topic", "typo", "--topic", "departures", "--complete").exit_code == 3
    printed = json.loads(run("report", "--topic", "typo", "--json").output)
    assert (printed["complete"], printed["verdict"], printed["unknown_topics"]) == (False, "nothing to compare", ["typo"])
    done = run("report", "--only", "local=other", "--complete")
    assert (done.exit_code, done.output.splitlines()[-1][:18]) == (3, "nothing to compare")


def test_a_topic_that_may_be_misspelt_gets_a_suggestion_and_is_not_decided(ledger: Ledger) -> None:
    """Claim: a topic may be like another and still to come, so a script gets the code for what is not decided, as for any name without
    counts; people get the nearest topic that has counts, beside the report. One that has untracked records is there, and spelt right."""
    two_windows(ledger)
    said = "no tier has counts of topic departure, did you mean 'departures'?"
    done = run("report", "--topic", "departure")
    assert (done.exit_code, done.stderr.splitlines()) == (3, [said])
    assert done.stdout.splitlines() == ["nothing about topic departure: no tier has counts of it"]
    done = run("report", "--topic", "departure", "--json")
    assert (done.exit_code, done.stderr.splitlines(), json.loads(done.stdout)["unknown_topics"]) == (3, [said], ["departure"])
    done = run("report", "--topic", "departure", "--topic", "departures")
    assert (done.exit_code, done.stderr.splitlines()) == (3, [said])
    assert run("report", "--topic", "paid").stderr == ""
    ledger.say("counts", "local", CountKey("departure", NOON, "", "", "", ""), Count(1, 1, 0, NOON, NOON))
    done = run("report", "--topic", "departure")
    assert (done.exit_code, done.stderr) == (3, "")


def test_a_topic_that_other_tiers_count_is_no_misspelt_one(ledger: Ledger) -> None:
    two_windows(ledger)
    ledger.topic = "arrivals"
    for tier in ("edge", "lake"):
        ledger.counts(tier, events(EWR, 5))
    assert run("report", "--topic", "departures", "--tiers", "edge,lake").exit_code == 3


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--tiers", "producer,locla"), "Invalid value for --tiers: no tier locla has published counts, did you mean 'local'?"),
        (("--grace", "lcoal=5"), "Invalid value for --grace: no tier lcoal has published counts, did you mean 'local'?"),
        (("--only", "produce=.*"), "Invalid value for --only: no tier produce has published counts, did you mean 'producer'?"),
        (
            ("--tiers", "producer,local,lake"),
            (
                "Invalid value for --tiers: tier lake has no counts yet, local, producer have; "
                "run its auditor (moldau audit run --tier lake) or load (moldau load --tier lake) first; "
                "to expect it already, give --tiers with it and --only lake=PATTERN for its topics"
            ),
        ),
    ],
)
def test_a_tier_that_was_never_heard_of_is_refused(ledger: Ledger, arguments: tuple[str, ...], said: str) -> None:
    """A misspelt name would be a tier that lost everything: wrong use, with the nearest name; one that is still to come is said to be."""
    two_windows(ledger)
    done = run("report", *arguments)
    assert (done.exit_code, done.output.splitlines()[-1]) == (2, f"Error: {said}")
    done = run("report", "--tiers", "producer,local,lake", "--only", "lake=.*", "--grace", "lake=0")
    assert (done.exit_code, "1,000 of 1,000 not counted; tier lake has published nothing yet" in done.output) == (3, True)


def test_a_misspelt_tier_is_refused_alike_by_what_reads_counts_and_what_takes_them_back(ledger: Ledger) -> None:
    """Claim: wrong use with the nearest name; a name that is like none is told with all that there are to take back."""
    two_windows(ledger)
    said = "no tier locla has published counts, did you mean 'local'?"
    for command, option in (("report", "--tiers=producer,locla"), ("forget", "--tier=locla")):
        done = run(command, option)
        assert (done.exit_code, done.output.splitlines()[-1]) == (2, f"Error: Invalid value for {option.partition('=')[0]}: {said}")
    done = run("forget", "--tier", "lake")
    assert (done.exit_code, done.output.splitlines()[-1]) == (2, "Error: Invalid value for --tier: tier lake has no counts yet, local have")


def test_where_nothing_was_counted_there_is_nothing_to_take_back(ledger: Ledger) -> None:
    done = run("forget", "--tier", "lake")
    assert (done.exit_code, done.output) == (1, "Error: tier lake has no counts\n")


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ("lake=lakes", "tier lake: no table of topic departures at lakes/departures"),
        ("lake=.", "tier lake: no table of topic departures at ./departures"),
        (
            "lake=lake/departures",
            (
                "tier lake: no table of topic departures at lake/departures/departures; "
                "lake/departures is a table itself, give the directory that it is in"
            ),
        ),
        ("lak=lake", "tier lak is not compared, only producer, local, lake are, did you mean 'lake'?"),
    ],
)
def test_a_directory_without_the_table_of_a_load_is_refused(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tables: str, said: str
) -> None:
    """Claim: a wrong directory, or a wrong tier, is wrong use that names the path, and no list of missing guids."""
    monkeypatch.chdir(tmp_path)
    Path("lake/departures/_manifests").mkdir(parents=True)
    two_windows(ledger)
    ledger.counts("lake", events(EWR, 5)).wait(1000).has_counted_all("lake").wait(60 * MINUTE)
    done = run("report", "--missing", "--table", tables)
    assert (done.exit_code, done.output.splitlines()[-1]) == (2, f"Error: Invalid value for --table: {said}")


def test_a_load_that_has_counted_nothing_of_a_topic_may_have_no_table_of_it(tmp_path: Path) -> None:
    check_directory(str(tmp_path), "departures", counted=False)
    with pytest.raises(NoTableError, match=r"no table of topic departures at .*/elsewhere/departures"):
        check_directory(str(tmp_path / "elsewhere"), "departures", counted=False)
    (tmp_path / "dead-letters" / "departures" / "_manifests").mkdir(parents=True)
    check_directory(str(tmp_path), "departures", counted=True)


def test_a_topic_that_a_load_never_loaded_is_a_remark(ledger: Ledger) -> None:
    """No alarm, but nobody can overlook it; and with a pattern of the load's it is a loss."""
    two_windows(ledger)
    ledger.marks("local").counts("lake", [*events(EWR, 1000), *events(EWR, 20, start_ms=START + 10 * MINUTE, first=5_000)])
    ledger.topic, other = "other", Host("lga-1", "lga", instance=b"inst-lga")
    ledger.opens(other).counts("producer", events(other, 1)).closes(other).wait(1000).counts("local", events(other, 1)).wait(60 * MINUTE)
    done = run("report", "--complete")
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "not counted by tier lake: other")
    assert json.loads(run("report", "--json").output)["not_counted"] == {"lake": ["other"]}
    done = run("report", "--only", "lake=.*")
    assert (done.exit_code, "1 of 1 not counted; tier lake has counted everything only up to" in done.output) == (3, True)
    ledger.has_counted_all("lake").wait(60 * MINUTE)
    done = run("report", "--only", "lake=.*")
    assert (done.exit_code, "1 of 1 missing" in done.output) == (4, True)


def test_a_topic_and_a_tier_that_are_both_named_are_compared_or_not_counted_yet(ledger: Ledger) -> None:
    """Claim: `--tiers` with a load and `--topic` with what it has not loaded is no complete report; a loss above it is still a loss."""
    two_windows(ledger)
    ledger.topic, other = "paid", Host("lga-1", "lga", instance=b"inst-lga")
    ledger.counts("lake", events(EWR, 5)).wait(60 * MINUTE)
    ledger.topic = "departures"
    named = ("report", "--tiers", "producer,local,lake", "--topic", "departures")
    done = run(*named)
    assert (done.exit_code, done.output.splitlines()[-1]) == (3, "not counted yet by tier lake: departures")
    assert run(*named, "--complete").exit_code == 3
    printed = json.loads(run(*named, "--json").output)
    assert (printed["verdict"], printed["complete"], printed["not_counted"]) == ("not counted yet", False, {"lake": ["departures"]})
    assert run("report", "--tiers", "producer,local", "--topic", "departures").exit_code == 0
    assert run("report", "--topic", "departures").exit_code == 0
    ledger.opens(other).counts("producer", events(other, 3)).closes(other).counts("local", events(other, 2)).wait(1000)
    ledger.marks("local").wait(60 * MINUTE)
    assert run(*named).exit_code == 4


def test_a_topic_that_an_auditor_rules_out_is_not_awaited_from_it(ledger: Ledger) -> None:
    """Claim: an auditor's published `--topics` says that it will never count the topic: the others are compared, and a watch ends."""
    two_windows(ledger)
    ledger.say("open", "central", CountKey("", 0, "", "arrivals|paid", "", "central"))
    named = ("--tiers", "producer,local,central", "--topic", "departures")
    done = run("report", *named, "--complete")
    assert (done.exit_code, done.output.splitlines()[-1]) == (0, "not counted by tier central: departures")
    printed = json.loads(run("report", *named, "--json").output)
    assert (printed["verdict"], printed["complete"], printed["not_counted"]) == ("complete", True, {"central": ["departures"]})
    assert run("watch", *named, "--until-complete").exit_code == 0
    with_load = ("--tiers", "producer,local,central,lake", "--topic", "departures")
    ledger.topic = "paid"
    ledger.counts("lake", events(EWR, 5)).wait(60 * MINUTE)
    assert run("report", *with_load).output.splitlines()[-2:] == [
        "not counted by tier central: departures",
        "not counted yet by tier lake: departures",
    ]
    assert run("report", *with_load).exit_code == 3
    ledger.say("open", "central", CountKey("", 0, "", "arrivals|departures", "", "central"))
    assert run("report", *named).exit_code == 4  # it is meant to count it, and says that it has counted everything


def test_untracked_records_do_not_bury_the_verdicts(ledger: Ledger) -> None:
    """Nothing of tiers that were not asked for; a line for each topic that is compared, and one for all others."""
    two_windows(ledger)
    for tier, topic in (("local", "departures"), ("other", "departures"), ("local", "queue-1"), ("local", "queue-2")):
        ledger.say("counts", tier, CountKey(topic, NOON, "", "", "", ""), Count(1, 1, 0, NOON, NOON))
    assert run("report", "--tiers", "producer,local").output.splitlines()[2:] == [
        "untracked in topic departures: 1 record of 1 byte by tier local",
        "untracked in topics that are not compared: queue-1, queue-2; --json has the numbers",
    ]


@pytest.mark.parametrize(
    "arguments",
    [
        ("report", "--tiers", "producer"),
        ("report", "--tiers", "a,a"),
        ("report", "--tiers", "a,"),
        ("report", "--tiers", "local,producer"),
        ("report", "--grace", "soon"),
        ("report", "--grace", "local=-1"),
        ("report", "--grace", "local=nan"),
        ("report", "--only", "local"),
        ("report", "--only", "local=("),
        ("report", "--tier-bootstrap", "local"),
        ("report", "--tier-bootstrap", "local=nowhere:x"),
        ("report", "--tier-bootstrap", "producer=localhost:9092"),
        ("report", "--tier-bootstrap", "local=a:1", "--tier-bootstrap", "local=b:1"),
        ("report", "--tier-bootstrap", "lake=a:1", "--table", "lake=/lake"),
        ("report", "--since", "latest"),
        ("report", "--since", "monday"),
        ("run",),
        ("run", "--tier", "producer"),
        ("run", "--tier", "a,b"),
        ("run", "--tier", "a", "--topics", "("),
        ("run", "--tier", "a", "--registry", "ftp://nowhere"),
    ],
)
def test_options_that_nobody_can_mean(arguments: tuple[str, ...]) -> None:
    done = run(*arguments)
    assert (done.exit_code, done.output.splitlines()[0][:6]) == (2, "Usage:")


def test_watch_prints_a_line_for_each_change(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """Elsewhere than at a terminal: the summary when it changes, a fault once, and the end when all is complete or something is lost."""
    two_windows(ledger, lost=3)
    done = run("watch", "--until-complete")
    assert done.exit_code == 4
    assert done.output.splitlines() == [
        "departures: producer > local: loss (1 of 2 windows); 1,020 > 1,017 events in 2 windows, complete up to -",
        "departures: producer > local: window 2013-01-01T12:00:00Z: loss; ewr/departures/ewr-1/696e73742d657772: loss, 3 of 1,000 missing",
    ]
    later = iter([[], events(EWR, 3)])

    def read(_: object, into: TierCounts | None = None, *, source: str = OWN_SOURCE) -> TierCounts:
        ledger.counts("local", next(later))
        return ledger.found

    monkeypatch.setattr(follow, "read_audit", read)
    done = run("watch", "--until-complete", "--every", "0.1", "--grace", "900000000")
    assert done.exit_code == 0
    assert [re.sub(r"\d{4}-.*?Z", "TIME", line.split(";")[0]) for line in done.output.splitlines()] == [
        "departures: producer > local: not due until TIME (1 of 2 windows)",
        "departures: producer > local: complete",
    ]


def test_watch_prints_json_objects(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """One in a line for each change, as `report --json` has them, with its kind and when it was seen; nothing twice."""
    two_windows(ledger, lost=3)
    ledger.found.unreadable.append(UnreadableRecord(4, 17, "not JSON"))
    later = iter([[], [], events(EWR, 3)])

    def read(_: object, into: TierCounts | None = None, *, source: str = OWN_SOURCE) -> TierCounts:
        ledger.counts("local", next(later))
        return ledger.found

    monkeypatch.setattr(follow, "read_audit", read)
    done = run("watch", "--json", "--until-complete", "--every", "0.1", "--grace", "900000000")
    printed = [json.loads(line) for line in done.output.splitlines()]
    assert (done.exit_code, [each["kind"] for each in printed]) == (0, ["topic", "unreadable", "topic"])
    assert [each["verdict"] for each in printed[::2]] == ["not yet due", "complete"]
    assert all(each["seen_ms"] > START for each in printed)
    assert (printed[1]["partition"], printed[1]["offset"], printed[2]["lower"]["count"]) == (4, 17, 1_020)
    ledger.counts("lake", events(EWR, 5))
    monkeypatch.setattr(follow, "read_audit", lambda *_, source: ledger.found)
    done = run("watch", "--json", "--until-complete", "--grace", "0.1")
    printed = [json.loads(line) for line in done.output.splitlines()]
    assert (done.exit_code, {each["kind"] for each in printed}) == (4, {"topic", "window", "unreadable"})
    assert next(each for each in printed if each["kind"] == "window")["sources"][0]["host"] == "ewr-1"


def test_watch_waits_for_brokers_that_are_away(ledger: Ledger, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so once for as long as they are, and then goes on where it was."""
    two_windows(ledger)
    answers = iter([ConnectionLostError(Address("kafka-1", 9092), "the broker closed the connection")] * 2 + [None])

    def read(_: object, into: TierCounts | None = None, *, source: str = OWN_SOURCE) -> TierCounts:
        if error := next(answers):
            raise error
        return ledger.found

    monkeypatch.setattr(follow, "read_audit", read)
    done = run("watch", "--until-complete", "--every", "0.1")
    assert (done.exit_code, done.stderr) == (
        0,
        "kafka-1:9092: the broker closed the connection; trying again\nthe brokers answer again\n",
    )
    assert done.stdout.startswith("departures: producer > local: complete")


def test_gaps_stand_in_the_report(ledger: Ledger) -> None:
    """What an auditor could not count, or counted in vain, by partition and offsets, in JSON too."""
    two_windows(ledger)
    for guid, gap in (("1" * 32, Gap(1, 100, 150, "gone")), ("2" * 32, Gap(0, 50, 70, "cut"))):
        ledger.found.take(AuditRecord("gap", guid, ledger.now, "local", CountKey("departures", 0, "", "", "", "local"), gap=gap))
    assert run("report").output.splitlines()[-2:] == [
        "gap: partition departures-1, offsets 100 to 149 were deleted from the log before tier local had counted them",
        "gap: partition departures-0, offsets 50 to 69 were counted by tier local, and then the log lost its end",
    ]
    gap_of = json.loads(run("report", "--json").output)["gaps"][0]
    expected = {"partition": 1, "start_offset": 100, "end_offset": 150, "cause": "gone"}
    assert gap_of == {"tier": "local", "topic": "departures", "time_ms": ledger.now, **expected}


def test_once_with_a_pattern_that_matches_nothing_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is misspelt, or the topic is not there: whoever counts once and goes on must not take that for done."""

    class Counted:
        def __init__(self, *_: object, **__: object) -> None: ...

        def run(self, *, once: bool) -> None:
            assert once

        def stop(self) -> None: ...

        def statistics(self) -> dict[str, int]:
            return {"published": 0, "transactions": 0, "partitions": partitions}

    monkeypatch.setattr(auditor, "Auditor", Counted)
    monkeypatch.setattr(audit_run, "open_cluster", lambda *_: nullcontext(None))
    monkeypatch.setattr("moldau.assembly.server_log.set_up_logging", lambda *_: None)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    partitions = 0
    done = run("run", "--tier", "local", "--once", "--topics", "typo")
    assert (done.exit_code, done.stderr) == (1, "Error: no topic matches 'typo', so there was nothing to count\n")
    partitions = 3
    assert run("run", "--tier", "local", "--once", "--topics", "typo").exit_code == 0


def test_once_without_brokers_is_an_error_and_no_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own connection asks first: the line is ours, and nothing was counted that could be told."""

    def refuse(*_: object) -> None:
        raise ConnectionLostError(Address("kafka-1", 9092), "no answer in time")

    monkeypatch.setattr(audit_run, "open_cluster", refuse)
    monkeypatch.setattr("moldau.assembly.server_log.set_up_logging", lambda *_: None)
    done = run("run", "--tier", "local", "--once")
    assert (done.exit_code, done.stdout, done.stderr) == (1, "", "Error: kafka-1:9092: no answer in time\n")


def test_a_report_imports_nothing_heavy() -> None:
    """No numpy, no librdkafka, no rich: a report is printed in a blink, and where Moldau alone is installed."""
    probe = (
        "import sys; import moldau.audit.watermark; from moldau.cli.application import application\n"
        "try: application(['audit', 'report', '--bootstrap', '127.0.0.1:1', '--timeout', '0.1'], standalone_mode=False)\n"
        "except Exception: pass\n"
        "heavy = {'numpy', 'pyarrow', 'confluent_kafka', 'rich', 'asyncio', 'cramjam', 'xxhash', 'fastavro'} & set(sys.modules)\n"
        "assert 'moldau.audit.reconcile' in sys.modules\nassert not heavy, heavy\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
