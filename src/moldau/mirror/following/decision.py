"""Which offsets of a group are committed in the target. No I/O."""

from collections.abc import Iterable, Mapping

from moldau.mirror.following.groups import Committed
from moldau.mirror.translation.translate import Translated
from moldau.model.identity import TopicPartition


def offsets_to_commit(translated: Iterable[Translated], there: Mapping[TopicPartition, Committed]) -> dict[TopicPartition, int]:
    """Those that move a group of the target on: where it is ahead it has worked there itself, and stays. `there`: what it has committed."""
    return {
        each.target: each.offset
        for each in translated
        if each.offset is not None and (each.target not in there or there[each.target].offset < each.offset)
    }
