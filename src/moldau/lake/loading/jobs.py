"""A job of many topics: one table for each, below one directory, by one set of rules that a topic may depart from."""

import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from moldau.lake.loading.job import STOP, LoadJob, check_name
from moldau.model.near_names import did_you_mean
from moldau.model.topic_names import matches

DEAD_LETTERS_FOLDER = "dead-letters"
DEFAULT_TIER = "lake"
DEFAULT_RECORDS_MAX = 10_000_000

_OF_JSON_EVENTS = ("columns", "time", "headers", "refuse_unknown", "reject_header")
TOPIC_SETTINGS = frozenset((*_OF_JSON_EVENTS, "registry", "subject", "partition", "writers", "on_incompatible", "records_max"))
"""What may be said of one topic alone."""


@dataclass(frozen=True, slots=True)
class LoadJobs:
    """Which topics go where. The tables are ``directory/TOPIC``, the dead letters ``directory/dead-letters/TOPIC``."""

    name: str
    bootstrap: str
    directory: str
    topics: tuple[str, ...] = ()
    """These topics, and no other; or `pattern`."""
    pattern: str | None = None
    """A regular expression for the whole name of a topic; new ones are found in each round. Internal topics only if it begins with an
    underscore."""
    registry: str | None = None
    partition: str = "day"
    table_format: str = "delta"
    tier: str | None = DEFAULT_TIER
    on_incompatible: str = STOP
    isolation_level: str = "read_committed"
    writers: int | None = None
    records_max: int | None = DEFAULT_RECORDS_MAX
    group_id: str | None = None
    """The consumer group that shows the lag of all topics; None: ``moldau-load-NAME``."""
    settings: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """By topic: what of TOPIC_SETTINGS is another one there."""

    def __post_init__(self) -> None:
        check_name(self.name)
        if bool(self.topics) == (self.pattern is not None):
            raise ValueError(f"load {self.name}: give topics or a pattern, one of the two")
        if self.pattern is not None:
            try:
                re.compile(self.pattern)
            except re.error as error:
                raise ValueError(f"load {self.name}: {self.pattern!r} is not a regular expression: {error}") from None
            if self.registry is None:
                raise ValueError(f"load {self.name}: a pattern needs a registry: of topics that are yet to come nobody can say the columns")
        twice = [topic for topic in self.topics if self.topics.count(topic) > 1]
        if twice:  # its two loads would be in each other's way, round for round
            raise ValueError(f"load {self.name}: topic {twice[0]} is named twice")
        if DEAD_LETTERS_FOLDER in self.topics:
            raise ValueError(f"load {self.name}: a topic {DEAD_LETTERS_FOLDER!r} has no place in {self.directory}: dead letters lie there")
        for topic, changes in self.settings.items():
            unknown = sorted(set(changes) - TOPIC_SETTINGS)
            if unknown:
                raise ValueError(
                    f"load {self.name}: topic {topic} cannot have a setting {unknown[0]!r}{did_you_mean(unknown[0], TOPIC_SETTINGS)}"
                )
            if self.topics and topic not in self.topics:
                raise ValueError(f"load {self.name}: there are settings for topic {topic}, which is not loaded")
            self.job(topic)
        for topic in self.topics:
            self.job(topic)

    def job(self, topic: str) -> LoadJob:
        """The job of one topic. ValueError for settings that cannot be meant."""
        shared = {each.name for each in fields(LoadJob)} & {each.name for each in fields(LoadJobs)} - {"group_id"}
        values = {name: getattr(self, name) for name in shared}
        values |= {
            "topic": topic,
            "table": os.path.join(self.directory, topic),
            "dead_letters": os.path.join(self.directory, DEAD_LETTERS_FOLDER, topic),
            "group_id": self.group_id or f"moldau-load-{self.name}",
        }
        values |= self.settings.get(topic, {})
        if values.get("columns") is not None:
            values["registry"] = None
        return LoadJob(**values)

    def jobs(self, existing: Iterable[str]) -> list[LoadJob]:
        """The jobs for the topics that there are, and for all that are named: whether one of them is gone the load itself judges."""
        there = set(existing)
        if self.pattern is not None:
            matching = re.compile(self.pattern)
            return [self.job(topic) for topic in sorted(there) if matches(matching, topic) and topic != DEAD_LETTERS_FOLDER]
        return [self.job(topic) for topic in self.topics]

    def missing(self, existing: Iterable[str]) -> list[str]:
        """Topics that are named and neither exist nor have a table from when they did."""
        there = set(existing)
        return [topic for topic in self.topics if topic not in there and not os.path.exists(os.path.join(self.directory, topic))]
