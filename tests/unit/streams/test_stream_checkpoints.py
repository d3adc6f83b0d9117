"""What a job reads in Spark's checkpoint: the query's id, and the plan of a batch."""

from pathlib import Path

import pytest

from moldau.streams.checkpoints import Checkpoint, parse_batch, positions_of
from moldau.streams.errors import CheckpointError

PLAN = """v1
{"batchWatermarkMs":1357000000000,"batchTimestampMs":1357000100000,"conf":{"spark.sql.shuffle.partitions":"2"}}
{"flights": {"0": 23, "1": 17, "id": "9f6c"}}
-
{"planes": {"0": 5, "id": "77aa"}}"""


def test_a_plan_has_the_watermark_and_the_ends() -> None:
    batch = parse_batch(PLAN)
    assert (batch.watermark_ms, batch.time_ms) == (1357000000000, 1357000100000)
    assert batch.ends == {"flights": {"0": 23, "1": 17}, "planes": {"0": 5}}


def test_of_two_inputs_of_a_topic_the_one_that_has_read_less_counts() -> None:
    assert positions_of(['{"a": {"0": 7, "1": 1}}', '{"a": {"0": 5, "1": 3}}']) == {"a": {"0": 5, "1": 1}}


def test_the_files(tmp_path: Path) -> None:
    """There is no id before the first start; then it is there, and the batches are."""
    checkpoint = Checkpoint(str(tmp_path))
    assert checkpoint.run_id() is None
    (tmp_path / "metadata").write_text('{"id":"0c4e1a9e"}')
    (tmp_path / "offsets").mkdir()
    for number in (0, 9, 10):
        (tmp_path / "offsets" / str(number)).write_text(PLAN)
    assert checkpoint.run_id() == "0c4e1a9e"
    assert checkpoint.batch(10).watermark_ms == 1357000000000


@pytest.mark.parametrize("text", ["", "v1", "v2\n{}", "v1\n{}", "v1\nnot json"])
def test_a_plan_that_cannot_be_read_names_the_batch(text: str, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text(text)
    with pytest.raises(CheckpointError, match="the plan of batch 3 cannot be read"):
        Checkpoint(str(tmp_path)).batch(3)


def test_what_is_missing_or_damaged(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match="there is no plan of batch 4"):
        Checkpoint(str(tmp_path)).batch(4)
    (tmp_path / "metadata").write_text("{}")
    with pytest.raises(CheckpointError, match="metadata is not what Spark writes there"):
        Checkpoint(str(tmp_path)).run_id()


def test_the_newest_batch(tmp_path: Path) -> None:
    """The one with the greatest number; Spark's checksums and files that it has not finished are none."""
    checkpoint = Checkpoint(str(tmp_path))
    assert checkpoint.newest() is None
    (tmp_path / "offsets").mkdir()
    assert checkpoint.newest() is None
    for name in ("9", "10", ".11.crc", ".12.5f1e.tmp"):
        (tmp_path / "offsets" / name).touch()
    assert checkpoint.newest() == 10
