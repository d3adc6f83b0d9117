"""Which tiers there are, and from which others each takes its events: a chain, or a tree of several clusters. Pure.

A tier has the sum of what its sources have. Producers are the sources of several local clusters where each instance sends to one of them;
an aggregate takes from all of these; what takes from the aggregate (another cluster, a table) has all that it has. A chain is the tree in
which every tier has one source:

    producer > ewr.local ─┐
                          ├─> aggregate > offline > lake
    producer > jfk.local ─┘

As a file, in TOML; ``from`` is the producers where it is left out, ``datacenters`` what stands before the first dot of the name:

    [tiers."ewr.local"]
    bootstrap = "kafka-ewr:9092"
    datacenters = ["ewr"]

    [tiers.aggregate]
    from = ["ewr.local", "jfk.local"]
    bootstrap = "kafka-aggregate:9092"

A tier's name is its identity in the audit: it is one cluster, or one load, and its mark vouches for it alone.
"""

import tomllib
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Self

from moldau.model.errors import MoldauError
from moldau.model.host_port import parse_addresses
from moldau.model.near_names import did_you_mean
from moldau.tracking.audit_record import PRODUCER_TIER, TIER_NAME

_SETTINGS: Final = ("from", "bootstrap", "datacenters")


class TreeError(MoldauError):
    """Tiers that are no tree, or a file that describes none."""


@dataclass(frozen=True, slots=True)
class Tier:
    """A place where events are counted: the producers, a cluster, a load."""

    name: str
    sources: tuple[str, ...] = ()
    """The tiers whose sum it has; without any it is compared with none."""
    datacenters: tuple[str, ...] = ()
    """Of a tier that takes from producers, beside others that do: where the producers are whose events it should have."""
    bootstrap: str = ""
    """Brokers whose audit topic has its counts; empty: those that are asked anyway."""


@dataclass(frozen=True, slots=True)
class Feed:
    """What a tier should have of another one: all of it, or of producers the instances that are at home in `homes`."""

    tier: str
    homes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class TierTree:
    """All tiers, each after its sources. Without any it is not known which there are. `of` checks."""

    tiers: tuple[Tier, ...] = ()

    @classmethod
    def of(cls, tiers: Iterable[Tier]) -> Self:
        """Sorted from the producers down, otherwise in the order that was given. TreeError."""
        by_name: dict[str, Tier] = {}
        for tier in tiers:
            if tier.name in by_name:
                raise TreeError(f"tier {tier.name} is there twice")
            by_name[tier.name] = tier
        if any(PRODUCER_TIER in tier.sources for tier in by_name.values()):
            by_name = {PRODUCER_TIER: Tier(PRODUCER_TIER)} | by_name
        for tier in by_name.values():
            _check_sources(tier, by_name)
        tree = cls(tuple(by_name[name] for name in _sorted(by_name)))
        for tier in tree.tiers:
            tree._check_apart(tier)
        return tree

    @classmethod
    def chain(cls, names: Sequence[str]) -> Self:
        """Each tier takes from the one before it."""
        return cls(tuple(Tier(name, tuple(names[max(0, at - 1) : at])) for at, name in enumerate(names)))

    def __bool__(self) -> bool:
        return bool(self.tiers)

    @property
    def names(self) -> tuple[str, ...]:
        """From the producers down."""
        return tuple(tier.name for tier in self.tiers)

    @property
    def locals(self) -> tuple[Tier, ...]:
        """The tiers that take from producers."""
        return tuple(tier for tier in self.tiers if PRODUCER_TIER in tier.sources)

    def sources(self, name: str) -> tuple[str, ...]:
        """Of a tier."""
        return next((tier.sources for tier in self.tiers if tier.name == name), ())

    def above(self, name: str) -> frozenset[str]:
        """The tiers that its events come through: its sources, theirs, and so on."""
        found: set[str] = set()
        for source in self.sources(name):
            found |= {source} | self.above(source)
        return frozenset(found)

    def feeds(self, name: str, counting: Collection[str]) -> tuple[Feed, ...]:
        """What a tier is compared with where only these tiers count: in the place of a source that does not, that one's own feeds."""
        homes: dict[str, frozenset[str]] = {}
        for source in self.sources(name):
            own = Feed(source, frozenset({name}) if source == PRODUCER_TIER else frozenset())
            for feed in (own,) if source in counting else self.feeds(source, counting):
                homes[feed.tier] = homes.get(feed.tier, frozenset()) | feed.homes
        return tuple(Feed(tier, of) for tier, of in homes.items())

    def _check_apart(self, tier: Tier) -> None:
        """TreeError for a tier that would have events twice, by two of its sources."""
        seen: dict[str, str] = {}
        for source in tier.sources:
            for each in ({source} | self.above(source)) - {PRODUCER_TIER}:
                if each in seen:
                    raise TreeError(f"tier {tier.name} takes from {seen[each]} and from {source}, which both have what {each} has")
                seen[each] = source
        if PRODUCER_TIER in tier.sources and len(tier.sources) > 1:
            raise TreeError(f"tier {tier.name} takes from producers, so it takes from no other tier: it would have their events twice")


NO_TREE: Final = TierTree()
"""It is not known which tiers there are."""


def _check_sources(tier: Tier, known: Mapping[str, Tier]) -> None:
    if not TIER_NAME.fullmatch(tier.name):
        raise TreeError(f"{tier.name!r}: a tier's name has letters, digits, and . _ -")
    if tier.name == PRODUCER_TIER and tier.sources:
        raise TreeError(f"tier {PRODUCER_TIER} is that of the producers themselves, who take from no other")
    for source in tier.sources:
        if source not in known:
            raise TreeError(f"tier {tier.name} takes from {source}, and there is no tier of that name{did_you_mean(source, known)}")
    if len(set(tier.sources)) != len(tier.sources):
        raise TreeError(f"tier {tier.name} takes from one tier twice: {', '.join(tier.sources)}")


def _sorted(known: Mapping[str, Tier]) -> list[str]:
    """The names, each after its sources."""
    done: list[str] = []
    while len(done) < len(known):
        ready = [name for name, tier in known.items() if name not in done and set(tier.sources) <= set(done)]
        if not ready:
            circle = ", ".join(name for name in known if name not in done)
            raise TreeError(f"tiers take from each other in a circle: {circle}")
        done += ready
    return done


def read_tree(text: str) -> TierTree:
    """The tree that a TOML file describes. TreeError says what is wrong with it."""
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise TreeError(f"no TOML: {error}") from None
    if unknown := sorted(document.keys() - {"tiers"}):
        raise TreeError(f"{unknown[0]} is unknown; there are only tables [tiers.NAME]")
    tables = document.get("tiers")
    if not isinstance(tables, dict) or not tables:
        raise TreeError("there is no table [tiers.NAME]")
    return TierTree.of([_tier(name, table) for name, table in tables.items()])


def _tier(name: str, table: Any) -> Tier:
    if not isinstance(table, dict):
        raise TreeError(f"tiers.{name} is a table, not {table!r}")
    if unknown := sorted(table.keys() - set(_SETTINGS)):
        raise TreeError(f"tier {name}: {unknown[0]} is unknown{did_you_mean(unknown[0], _SETTINGS)}; there are {', '.join(_SETTINGS)}")
    bootstrap = table.get("bootstrap", "")
    if not isinstance(bootstrap, str):
        raise TreeError(f"tier {name}: bootstrap is HOST:PORT, not {bootstrap!r}")
    try:
        if bootstrap:
            parse_addresses(bootstrap)
    except ValueError as error:
        raise TreeError(f"tier {name}: bootstrap: {error}") from None
    sources = _names(name, "from", table.get("from", PRODUCER_TIER if name != PRODUCER_TIER else []))
    before_dot = name.partition(".")
    datacenters = _names(name, "datacenters", table.get("datacenters", [before_dot[0]] if before_dot[1] else []))
    return Tier(name, sources, datacenters, bootstrap)


def _names(tier: str, setting: str, value: Any) -> tuple[str, ...]:
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, list) or not all(isinstance(each, str) and each for each in names):
        raise TreeError(f"tier {tier}: {setting} is a name or a list of names, not {value!r}")
    return tuple(names)
