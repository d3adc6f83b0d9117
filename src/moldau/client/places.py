"""Partitions and offsets as callers give them: what cannot be one is refused where it is given."""

from collections.abc import Iterable

from moldau.model.identity import TopicPartition


def checked_partitions(call: str, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
    """These partitions. TypeError for what `call` was given and is none; a pair of a topic and a number is one."""
    found = []
    for each in partitions:
        if not (isinstance(each, tuple) and len(each) == 2 and isinstance(each[0], str) and isinstance(each[1], int)):
            raise TypeError(f"{call} takes partitions, TopicPartition('orders', 0), not {each!r}")
        found.append(TopicPartition(*each))
    return found


def checked_offset(where: TopicPartition, offset: int) -> int:
    """This offset. ValueError where it is below 0."""
    if offset < 0:
        raise ValueError(f"partition {where[0]}-{where[1]}: an offset is 0 or more, not {offset}")
    return offset
