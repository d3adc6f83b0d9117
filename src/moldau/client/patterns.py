"""Subscriptions by pattern leave out internal topics, as those of Kafka's own consumers do (`exclude.internal.topics`).

librdkafka has a setting for that, and it holds for a consumer's whole life and for topics that are named too; so a consumer is made for the
topics that it subscribes to.
"""

from collections.abc import Iterable

from moldau.model.topic_names import INTERNAL_PREFIX, is_internal, names_internal

_PATTERN = "^"


def hiding_settings(topics: Iterable[str]) -> dict[str, str]:
    """Settings of a consumer that subscribes to these. ValueError for internal topics beside a pattern that must not match them."""
    patterns = [each for each in topics if each.startswith(_PATTERN) and not names_internal(each)]
    internal = [each for each in topics if is_internal(each) or (each.startswith(_PATTERN) and names_internal(each))]
    if patterns and internal:
        raise ValueError(
            f"pattern {patterns[0]} leaves out internal topics, which {internal[0]} names: subscribe to them with a consumer of their own, "
            f"or begin the pattern with {_PATTERN}{INTERNAL_PREFIX}?"
        )
    return {"topic.blacklist": f"{_PATTERN}{INTERNAL_PREFIX}"} if patterns else {}
