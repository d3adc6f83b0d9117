"""Generations have names, and a record of where the outputs were and are, which a switch replaces as a whole."""

import json
from pathlib import Path

import pytest

from moldau.streams.checkpoints import Checkpoint
from moldau.streams.errors import StreamError
from moldau.streams.generations import (
    JobGenerations,
    OutputPlace,
    Reprocessing,
    beside_name,
    decode_generations,
    directory_in,
    encode_generations,
    name_in,
)
from moldau.streams.reports import generations_key
from moldau.streams.reprocessing import planned
from moldau.streams.settling import has_reached, is_at
from moldau.streams.state_topic import StateBoard


def test_the_first_generation_has_the_names_of_the_file() -> None:
    assert [name_in("/lake/hours/", number) for number in (1, 2)] == ["/lake/hours/", "/lake/hours.v2"]
    assert [directory_in("/data/job", number) for number in (1, 3)] == ["/data/job", "/data/job/@3"]
    assert beside_name("hours", 2) == "hours@2"


def test_places_over_two_switches_are_a_chain() -> None:
    """Each ends where the next one continues; an output that a generation has no longer ends; a new one begins."""

    def place(name: str, generation: int, begin: int, end: int | None = None) -> OutputPlace:
        return OutputPlace(name, "topic", name_in(name, generation), generation, {"0": begin}, None if end is None else {"0": end})

    def ended(name: str, generation: int, end: int) -> OutputPlace:
        return OutputPlace(name, "topic", name_in(name, generation), generation, {}, {"0": end})

    second = JobGenerations().switched(2, [ended("a", 1, 10), ended("b", 1, 20)], [place("a", 2, 30), place("b", 2, 40)], 1000)
    third = second.switched(3, [ended("a", 2, 35), ended("b", 2, 45)], [place("a", 3, 7), place("c", 3, 0)], 2000)
    assert [each for each in third.places if each.output == "a"] == [
        OutputPlace("a", "topic", "a", 1, {}, {"0": 10}), place("a", 2, 30, 35), place("a", 3, 7),
    ]  # fmt: skip
    assert [each.end for each in third.places if each.output == "b"] == [{"0": 20}, {"0": 45}]
    assert third.current == 3
    board = StateBoard()
    board.take(generations_key("hours"), encode_generations(third))
    assert [board.successors_of(topic) for topic in ("a", "a.v2", "a.v3", "b")] == [[("hours", "a.v3")], [("hours", "a.v3")], [], []]
    assert decode_generations(encode_generations(third)) == third
    with pytest.raises(ValueError, match="not the generations of a stream job"):
        decode_generations(b'{"version":1}')


def test_a_command_continues_what_it_has_begun() -> None:
    """From where it began, whatever the topics have now; another beginning is refused, or with --fresh another generation."""
    begun = Reprocessing(2, "earliest", {"flights": {"0": 5}}, 1000)
    known = JobGenerations(last=2, reprocessing=begun)
    assert decode_generations(encode_generations(known)) == known
    assert planned(known, "earliest", dict, "hours", fresh=False) == begun
    with pytest.raises(StreamError, match="job hours: generation 2 is being made from earliest, not from 2013-07-01: continue it, or"):
        planned(known, "2013-07-01", dict, "hours", fresh=False)
    assert planned(known, "2013-07-01", dict, "hours", fresh=True).number == 3
    assert planned(JobGenerations(), "earliest", dict, "hours", fresh=False).number == 2


def test_positions_are_compared_by_topics_that_both_read() -> None:
    here = {"flights": {"0": 5, "1": 7}, "new": {"0": 1}}
    for there, at, reached in (
        ({"flights": {"0": 5, "1": 7}}, True, True),
        ({"flights": {"0": 4, "1": 7}, "no longer": {"0": 9}}, False, True),
        ({"flights": {"0": 5, "1": 8}}, False, False),
        ({"flights": {"0": 5, "1": 7, "2": 1}}, False, False),
    ):
        assert (is_at(here, there), has_reached(here, there)) == (at, reached)


def test_a_checkpoint_is_complete_when_its_last_batch_ran_with_the_watermark_that_it_gave(tmp_path: Path) -> None:
    """Otherwise there are windows to close; a batch that is not done is not complete. The round of limits is no topic."""
    checkpoint = Checkpoint(str(tmp_path))
    assert checkpoint.is_complete()
    for folder in ("offsets", "commits"):
        (tmp_path / folder).mkdir()

    def planned_batch(number: int, watermark_ms: int, end: int = 3) -> None:
        words = json.dumps({"batchWatermarkMs": watermark_ms, "batchTimestampMs": 5})
        (tmp_path / "offsets" / str(number)).write_text(f'v1\n{words}\n{{"flights":{{"0":{end},"id":"9f"}},"":{{"id":"a1"}}}}')

    planned_batch(0, 0)
    assert not checkpoint.is_complete()
    (tmp_path / "commits" / "0").write_text('v1\n{"nextBatchWatermarkMs":1000}')
    assert not checkpoint.is_complete()
    planned_batch(1, 1000)
    (tmp_path / "commits" / "1").write_text('v1\n{"nextBatchWatermarkMs":1000}')
    assert checkpoint.is_complete()
    assert checkpoint.batch(1).ends == checkpoint.furthest(1) == {"flights": {"0": 3}}
    planned_batch(2, 1000)
    assert checkpoint.is_complete(), "the next batch of a query by the clock, which reads nothing"
    planned_batch(2, 1000, 4)
    assert not checkpoint.is_complete()
