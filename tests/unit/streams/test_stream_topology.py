"""A file of jobs that feed each other: each mistake has its file and line, and the order is that of feeding."""

import os
from pathlib import Path
from unittest.mock import MagicMock, Mock

import pytest

from moldau.model.toml_table import PlanFileError
from moldau.streams import topology_loading
from moldau.streams.generations import JobGenerations, encode_generations
from moldau.streams.inputs import TopicInput
from moldau.streams.late import LateOutput
from moldau.streams.outputs import TopicOutput
from moldau.streams.queries import JobQuery
from moldau.streams.reports import generations_key
from moldau.streams.state_topic import StateBoard
from moldau.streams.topology_checks import Check, JobEnds, feeders, find, stages
from moldau.streams.topology_file import parse_stream_topology, read_stream_topology

BROKERS = "127.0.0.1:9092"
CYCLE = "a cycle: job a reads topic x, which job c writes; job c reads topic z, which job b writes; job b reads topic y, which job a writes"
HEAD = f'name = "flights"\nbootstrap = "{BROKERS}"\n'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "hours.py").write_text("")
    return tmp_path


def test_the_file(folder: Path) -> None:
    """Files of jobs are beside it; the environment of a job is that of all, and its own."""
    path = folder / "flights.toml"
    path.write_text(
        HEAD + 'registry = "http://127.0.0.1:8081"\nmaster = "spark://host-1:7077"\nenvironment = { LAKE = "/lake", DAY = "1" }\n'
        '[jobs.hours]\nfile = "hours.py"\n[jobs.days]\nfile = "hours.py"\nenvironment = { DAY = "2" }\n'
    )
    found = read_stream_topology(path)
    assert (found.name, found.bootstrap, found.registry, found.master) == (
        "flights",
        BROKERS,
        "http://127.0.0.1:8081",
        "spark://host-1:7077",
    )
    hours, days = found.jobs
    assert (hours.name, hours.file, hours.line, hours.file_line) == ("hours", str(folder / "hours.py"), 6, 7)
    common = {"LAKE": "/lake", "DAY": "1", "MOLDAU_BOOTSTRAP": BROKERS, "MOLDAU_REGISTRY": "http://127.0.0.1:8081"}
    assert (hours.environment, days.environment) == (common, {**common, "DAY": "2"})


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('name = "flights"\n', "1: bootstrap: is missing; it is the addresses of the cluster's brokers, HOST:PORT"),
        (HEAD, "1: jobs: is missing; each job is a table with its name, as [jobs.airport-hours]"),
        (HEAD + "[jobs.hours]\n", "3: [jobs.hours] file: is missing; it is a text"),
        (HEAD + '[jobs.hours]\nfile = "days.py"\n', "4: [jobs.hours] file: there is no file days.py"),
        (
            HEAD + '[jobs.hours]\nfiles = "hours.py"\n',
            "4: [jobs.hours] files: not known, did you mean 'file'?; there are file, environment",
        ),
        (HEAD + '[jobs."a b"]\nfile = "x"\n', "3: [jobs.a b]: a job's name has up to 100 letters, digits, '.', '_' and '-'"),
        (HEAD + "[jobs.hours]\n[jobs.hours]\n", "4: not TOML: "),
        (
            HEAD + 'master = "yarn"\n',
            "3: master: 'yarn' is no Spark cluster, spark://HOST:PORT: it does not begin with spark://",
        ),
        (HEAD + "[environment]\nDAY = 1\n", "4: [environment] DAY: must be a text, not 1"),
        (HEAD + '[environment]\nMOLDAU_BOOTSTRAP = "x:1"\n', "4: [environment] MOLDAU_BOOTSTRAP: is given by the key bootstrap"),
    ],
)
def test_mistakes_in_the_file_have_a_line(text: str, problem: str) -> None:
    with pytest.raises(PlanFileError) as caught:
        parse_stream_topology(text, "flights.toml")
    assert str(caught.value).startswith(f"flights.toml:{problem}")


def ends(name: str, inputs: str, outputs: str, line: int = 1, directory: str = "", brokers: str = BROKERS) -> JobEnds:
    """Of a job that reads and writes these topics, separated by blanks."""
    return JobEnds(name, tuple(inputs.split()), tuple(f"topic {each}" for each in outputs.split()), directory or f"/{name}", brokers, line)


def test_the_order_is_that_of_feeding() -> None:
    """Whatever the order in the file: a stage has the jobs that need only earlier ones."""
    jobs = [ends("d", "b2 c2", "d2"), ends("b", "a2", "b2"), ends("c", "a2 x", "c2"), ends("a", "x", "a2 a3"), ends("e", "y", "e2")]
    assert feeders(jobs) == {"d": ["b", "c"], "b": ["a"], "c": ["a"], "a": [], "e": []}
    assert stages(jobs) == [["a", "e"], ["b", "c"], ["d"]]
    assert find("t.toml", BROKERS, jobs, ["x", "y"]) == []


@pytest.mark.parametrize(
    ("jobs", "found"),
    [
        (
            [ends("a", "x", "y", 3), ends("b", "y", "z", 5), ends("c", "z", "x", 7)],
            [
                (
                    Check.CYCLE,
                    3,
                    CYCLE,
                )
            ],
        ),
        ([ends("a", "x y", "y", 3)], [(Check.CYCLE, 3, "a cycle: job a reads topic y, which job a writes")]),
        ([ends("a", "x no", "y", 4)], [(Check.NO_INPUT, 4, "job a reads topic no, which does not exist, and no job writes it")]),
        ([ends("a", "x", "y", 3), ends("b", "x", "y", 6)], [(Check.OUTPUT_TWICE, 6, "job b writes topic y, which job a writes already")]),
        (
            [ends("a", "x", "y", 3, "/jobs/a"), ends("b", "x", "z", 6, "/jobs/../jobs/a")],
            [(Check.DIRECTORY_TWICE, 6, "job b has its checkpoints in /jobs/a, as job a has already")],
        ),
        (
            [ends("a", "x", "y", 3, brokers="other:9092")],
            [(Check.BROKERS, 3, f"job a is at other:9092, and the topology at {BROKERS}: leave brokers= out")],
        ),
    ],
)
def test_mistakes_between_jobs(jobs: list[JobEnds], found: list[tuple[Check, int, str]]) -> None:
    """Topic x exists. Each mistake is named once, at the line of the job that is to be changed."""
    assert [(each.check, each.line, each.text) for each in find("t.toml", BROKERS, jobs, ["x"])] == found
    assert str(find("t.toml", BROKERS, jobs, ["x"])[0]).startswith(f"t.toml:{found[0][1]}: error: ")


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> StateBoard:
    """What `_stream_state` has, of a pretended cluster."""
    made = StateBoard()
    monkeypatch.setattr(topology_loading, "StateTopic", Mock(return_value=Mock(read_if_there=lambda: made)))
    monkeypatch.setattr(topology_loading, "ClusterLog", MagicMock())
    return made


def test_outputs_of_a_job_are_those_of_its_current_generation(monkeypatch: pytest.MonkeyPatch, folder: Path, board: StateBoard) -> None:
    """Those of late rows too: another job may read each of them, and is run after it."""
    outputs = [TopicOutput(topic, BROKERS) for topic in ("counts", "late")]
    late = LateOutput(TopicInput("flights"), 0, None, BROKERS, outputs[1])
    made = Mock(directory="/jobs", brokers=BROKERS)
    made.name, made.input_topics.return_value = "counts", ["flights"]
    made.queries.return_value = [JobQuery("counts", None, (outputs[0],), "append", "0 seconds", (late,))]
    monkeypatch.setattr(topology_loading, "load_job", lambda *_: made)
    topology = parse_stream_topology(HEAD + '[jobs.counts]\nfile = "hours.py"\n', str(folder / "flights.toml"))
    for generation, topics in ((1, ("counts", "late")), (2, ("counts.v2", "late.v2"))):
        board.take(generations_key("counts"), encode_generations(JobGenerations(generation, generation)))
        assert [each.topics for each in topology_loading.load_topology(topology).jobs] == [topics]


@pytest.mark.usefixtures("board")
def test_a_job_is_checked_with_its_environment(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """As its process has it: the store of its tables may need settings from there."""
    seen: list[str | None] = []
    made = Mock(directory="/jobs", brokers=BROKERS, check=lambda: seen.append(os.environ.get("AWS_ENDPOINT_URL")))
    made.name, made.queries.return_value, made.input_topics.return_value = "counts", [], ["flights"]
    monkeypatch.setattr(topology_loading, "load_job", lambda *_: made)
    text = '[jobs.counts]\nfile = "hours.py"\nenvironment = { AWS_ENDPOINT_URL = "http://host-1:9000" }\n'
    topology_loading.load_topology(parse_stream_topology(HEAD + text, str(folder / "flights.toml")))
    assert seen == ["http://host-1:9000"]
