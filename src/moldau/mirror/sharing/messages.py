"""What members of a mirror's group send when they join, and what its leader assigns to them: JSON, compressed with zlib.

A reader takes the keys that it knows, and the defaults for those that are missing, so later versions may add some. A key keeps its meaning
for ever. A thousand partitions with their rates take about 5 kB.
"""

import json
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from moldau.mirror.sharing.shares import NOTHING, Ownership, Share, shares_from_json, shares_to_json

VERSION = 1
TEXT_BYTES_MAX = 1 << 24
"""Of JSON that is read: few compressed bytes may be much text."""
INSTANCES_MAX = 10_000
"""Names of instances that are read of one message."""
_RATE_MAX = 1e15
_GENERATION_MAX = (1 << 31) - 1


@dataclass(frozen=True, slots=True)
class MemberState:
    """What a member sends when it joins."""

    instance: str
    ownership: Ownership = NOTHING
    rates: Mapping[Share, float] = field(default_factory=dict)
    """Bytes a second, measured, of what it owns; without partitions that it has not measured yet. Two digits are sent."""
    instances: tuple[str, ...] = ()
    """Members of the group that it knows of, without those whose departure it has handled."""

    def encode(self) -> bytes:
        """As the metadata of a JoinGroup."""
        shares = self.ownership.shares
        return _encode(
            {
                "instance": self.instance,
                "owned": shares_to_json(shares),
                "generation": self.ownership.generation_id,
                "rates": [None if (rate := self.rates.get(share)) is None else _coarse(rate) for share in shares],
                "instances": self.instances,
            }
        )

    @staticmethod
    def decode(data: bytes) -> "MemberState":
        """ValueError if it cannot be read."""
        values = _decode(data)
        shares = shares_from_json(values.get("owned", {}))
        return MemberState(
            _text(values, "instance"),
            Ownership(shares, _generation(values)),
            _rates(shares, values.get("rates", [])),
            _texts(values, "instances"),
        )


@dataclass(frozen=True, slots=True)
class Assignment:
    """What the leader assigns to one member, and what the members know of the group by it."""

    shares: tuple[Share, ...] = ()
    departed: tuple[str, ...] = ()
    """Instances that are no members any more, and whose departure no member is known to have handled."""
    instances: tuple[str, ...] = ()
    """All that members know of, those that departed included."""
    load: float = 0.0
    """Bytes a second of this member, as the leader sees it."""
    mean: float = 0.0
    """Bytes a second of a member on average."""
    must_rejoin: bool = False
    """Whether something that the member owned waits until it joins again. One that has lost its state meanwhile could not know it."""

    def encode(self) -> bytes:
        """As an assignment of a SyncGroup."""
        return _encode(
            {
                "assigned": shares_to_json(self.shares),
                "departed": self.departed,
                "instances": self.instances,
                "load": int(self.load),
                "mean": int(self.mean),
                "rejoin": self.must_rejoin,
            }
        )

    @staticmethod
    def decode(data: bytes) -> "Assignment":
        """ValueError if it cannot be read."""
        values = _decode(data)
        return Assignment(
            shares_from_json(values.get("assigned", {})),
            _texts(values, "departed"),
            _texts(values, "instances"),
            _rate(values.get("load")) or 0.0,
            _rate(values.get("mean")) or 0.0,
            values.get("rejoin") is True,
        )


def _encode(values: dict[str, object]) -> bytes:
    return zlib.compress(json.dumps({"version": VERSION, **values}, separators=(",", ":")).encode())


def _decode(data: bytes) -> dict[str, object]:
    inflation = zlib.decompressobj()
    try:
        text = inflation.decompress(data, TEXT_BYTES_MAX)
        if not inflation.eof:
            raise ValueError(f"cut off, or more than {TEXT_BYTES_MAX} bytes")
        values = json.loads(text)
    except (zlib.error, RecursionError) as error:
        raise ValueError(str(error)) from error
    if not isinstance(values, dict):
        raise ValueError("not an object")
    return values


def _coarse(rate: float) -> int:
    """Two digits: so the text stays small, and a rate that is nearly the same is the same."""
    return int(float(f"{rate:.1e}"))


def _rates(shares: tuple[Share, ...], values: object) -> dict[Share, float]:
    if not isinstance(values, list):
        raise ValueError("rates are not a list")
    measured: Iterable[tuple[Share, object]] = zip(shares, values, strict=False)
    return {share: rate for share, value in measured if (rate := _rate(value)) is not None}


def _rate(value: object) -> float | None:
    """A rate, None if it is none: NaN is no number, and infinity no rate."""
    return float(value) if isinstance(value, int | float) and 0 <= value <= _RATE_MAX else None


def _generation(values: Mapping[str, object]) -> int:
    generation_id = values.get("generation", -1)
    if not isinstance(generation_id, int) or not -1 <= generation_id <= _GENERATION_MAX:
        raise ValueError(f"not a generation: {generation_id}")
    return generation_id


def _text(values: Mapping[str, object], key: str) -> str:
    value = values.get(key)
    if not isinstance(value, str):
        raise ValueError(f"{key} is not a text")
    return value


def _texts(values: Mapping[str, object], key: str) -> tuple[str, ...]:
    found = values.get(key, [])
    if not isinstance(found, list) or len(found) > INSTANCES_MAX or not all(isinstance(each, str) for each in found):
        raise ValueError(f"{key} is not a list of texts")
    return tuple(sorted(set(found)))
