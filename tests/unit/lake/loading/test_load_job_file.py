"""The examples of load jobs can be meant: each file is read, and every topic has its job."""

from pathlib import Path

import pyarrow as pa
import pytest

from moldau.lake.loading.job import read_job_file

EXAMPLES = Path(__file__).parents[4] / "examples"


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("load-*.toml")), ids=lambda path: path.stem)
def test_the_examples_are_jobs(path: Path) -> None:
    jobs = read_job_file(path, {})
    assert {job.registry for job in jobs.jobs(["departures", "web-pages"])} == {jobs.registry}


def test_an_example_has_a_topic_of_its_own_kind() -> None:
    """JSON with columns, by day, among Avro topics by hour."""
    jobs = read_job_file(EXAMPLES / "load-warehouse.toml", {"to": "elsewhere"})
    assert [job.topic for job in jobs.jobs(["clicks", "other", "web-pages"])] == ["clicks", "web-pages"]
    clicks, pages = jobs.job("clicks"), jobs.job("web-pages")
    assert (clicks.partition, clicks.registry, clicks.table) == ("day", None, "elsewhere/clicks")
    assert clicks.columns == pa.schema([("member", pa.int64()), ("page", pa.string()), ("at", pa.timestamp("us", tz="UTC"))])
    assert (pages.partition, pages.columns, pages.records_max) == ("hour", None, 5_000_000)


def test_types_are_sparks_words_and_sqls(tmp_path: Path) -> None:
    """Claim: who writes `int` gets an integer; what is no type is told with its column, the nearest word and all words."""
    path = tmp_path / "job.toml"
    text = 'name="j"\nbootstrap="b:1"\nto="x"\ntopics=["t"]\n[topic.t]\ntime="at"\n'
    text += 'columns={{ a="{}", b={{type="array", elementType="bigint"}}, at="long" }}\n'
    for word, kind in (("int", pa.int32()), ("integer", pa.int32()), ("bool", pa.bool_()), ("smallint", pa.int16())):
        path.write_text(text.format(word))
        job = read_job_file(path, {}).job("t")
        assert (job.columns.types, job.time) == ([kind, pa.list_(pa.field("element", pa.int64())), pa.int64()], "at")
    path.write_text(text.format("strng"))
    with pytest.raises(
        ValueError, match=r"topic t: column a: a column of type strng is not known here, did you mean 'string'\?; there are byte,"
    ):
        read_job_file(path, {})
