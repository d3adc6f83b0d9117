"""What a mirror reports of what comes along with its records: values, and their record in `_mirror_state`.

docs/formats/mirror-state.md has the format.
"""

import json
from dataclasses import asdict, dataclass
from typing import NamedTuple

from moldau.mirror.state.orders import to_json

SHOWN_MAX = 100
"""Failures in a report: the first ones by name."""
REASON_MAX = 500
"""Characters of a reason."""


class GroupFailure(NamedTuple):
    """A group whose offsets are not mirrored."""

    group: str
    """Empty: groups of a broker, or all."""
    reason: str


class RefusedConfig(NamedTuple):
    """A configuration of a topic that the target does not take, or a topic whose configurations cannot be read."""

    topic: str
    """Of the target."""
    config: str
    """Empty: all."""
    reason: str


@dataclass(frozen=True, slots=True)
class Following:
    """The state of it all, as the process knows it that does it."""

    instance: str
    groups_ms: int = 0
    """When the last round over the groups ended; 0: none has."""
    groups: int = 0
    """That are selected."""
    groups_busy: int = 0
    """Of these, those with members in the target, which are left alone."""
    commits: int = 0
    """Offsets that this process has committed."""
    checkpoints: int = 0
    """That this process has written."""
    group_failures: tuple[GroupFailure, ...] = ()
    group_failure_count: int = 0
    groups_reason: str = ""
    """Why the last round has failed as a whole."""
    configs_ms: int = 0
    """When the last round over the configurations ended."""
    configs_changed: int = 0
    refused: tuple[RefusedConfig, ...] = ()
    refused_count: int = 0
    configs_reason: str = ""
    """Why the last round has failed as a whole."""

    def encode(self) -> bytes:
        """The value of its record."""
        return to_json(asdict(self))


def following_key(mirror: str) -> bytes:
    """The key of its record."""
    return to_json({"mirror": mirror, "following": True})


def following_in(value: bytes) -> Following:
    """What a record says. ValueError."""
    try:
        found = json.loads(value)
        found["group_failures"] = tuple(GroupFailure(*each) for each in found["group_failures"])
        found["refused"] = tuple(RefusedConfig(*each) for each in found["refused"])
        return Following(**found)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"not the report of what comes along: {value[:200]!r}") from error
