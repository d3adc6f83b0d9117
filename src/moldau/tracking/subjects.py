"""Under which subject of the registry the schema of a topic's events stands, by Confluent's three strategies."""

from typing import Final, Literal, assert_never, get_args

SubjectNaming = Literal["topic", "record", "topic-record"]
"""TopicNameStrategy (one kind of event per topic), RecordNameStrategy, TopicRecordNameStrategy (several kinds in a topic)."""

_NAMINGS: Final = get_args(SubjectNaming)


def check_naming(naming: SubjectNaming) -> None:
    """ValueError unless it is one of the three."""
    if naming not in _NAMINGS:
        raise ValueError(f"subject_naming is one of {', '.join(_NAMINGS)}, not {naming!r}")


def subject_of(naming: SubjectNaming, topic: str, record: str) -> str:
    """The subject of the values of `topic`; `record` is the full name of the event's schema."""
    match naming:
        case "topic":
            return f"{topic}-value"
        case "record":
            return record
        case "topic-record":
            return f"{topic}-{record}"
        case _:
            assert_never(naming)
