"""Which schema and topic an event has, and the id under which the registry knows that schema: found once, then kept. `SchemaRegistry` is
what that needs of a registry.

The topic is created before its first event, by the defaults of its category, if it does not exist.
"""

import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Literal, Protocol, assert_never, get_args

from moldau.registry.wire import frame
from moldau.tracking.schemas.event_schema import EventSchema, event_schema
from moldau.tracking.topics import TRACKING, Category, check_topic


class FoundSchema(Protocol):
    """A schema out of the registry. Besides this it knows what it refers to, for `SchemaRegistry.referenced`."""

    @property
    def type(self) -> str:
        """AVRO, JSON or PROTOBUF."""

    @property
    def text(self) -> str:
        """The schema."""


class SchemaRegistry(Protocol):
    """Any thread may use it. Its errors name subject or id."""

    def register(self, subject: str, text: str) -> int:
        """The id of an Avro schema, which is the subject's newest now unless it was there already."""

    def lookup(self, subject: str, text: str) -> Any:
        """What the subject knows of this schema, with its `id`; raises if it is not one of the subject's."""

    def schema(self, schema_id: int) -> Any:
        """The schema of an id; a `FoundSchema`."""

    def referenced(self, schema: Any) -> Iterable[FoundSchema]:
        """The schemas that it refers to, each after those that it needs itself."""


def open_registry(registry: "str | SchemaRegistry") -> "tuple[SchemaRegistry, Callable[[], None]]":
    """A client for a URL, and what closes it; what is a registry already stays as it is, and open. ValueError for what is neither."""
    if not isinstance(registry, str):
        if not callable(getattr(registry, "schema", None)):
            raise ValueError(f"registry is the URL of one (http://HOST:PORT) or a client of one, not {registry!r}")
        return registry, lambda: None
    from moldau.registry.client import RegistryClient

    client = RegistryClient(registry)
    return client, client.close


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


SchemaSource = EventSchema | Mapping[str, Any] | str | Path | type
EnsureTopic = Callable[[str, Category], object]

_MADE_BY: Final = "schema = event_schema(...), made once, then track(..., schema=schema)"


class EventRoute:
    """The way of one kind of event into one topic. `prefix` is what its values begin with, None until the registry was asked."""

    __slots__ = ("prefix", "schema", "topic")

    def __init__(self, topic: str, schema: EventSchema) -> None:
        self.topic = topic
        self.schema = schema
        self.prefix: bytes | None = None


class Routes:
    """What was declared, and what came up since. Any thread may ask. `ensure_topic` makes a topic of a category where it is missing."""

    def __init__(
        self,
        registry: SchemaRegistry,
        naming: SubjectNaming,
        *,
        auto_register: bool,
        ensure_topic: EnsureTopic | None = None,
        category: Category = TRACKING,
    ) -> None:
        """`category`: that of topics which are declared without one."""
        check_naming(naming)
        self._registry = registry
        self._naming = naming
        self._auto_register = auto_register
        self._ensure_topic = ensure_topic
        self._close_registry: Callable[[], None] | None = None
        self._category = category
        self._categories: dict[str, Category] = {}
        self._lock = threading.Lock()
        self._known: dict[tuple[str | None, object], EventRoute] = {}
        self._declared: dict[object, dict[str, EventSchema]] = {}
        """Of each kind, by the topics that it was declared for."""
        self._refused: dict[object, dict[str, str]] = {}
        """Why a type or schema could not be declared, by topic."""
        self._several: dict[str, list[str]] = {}
        """Topics with several kinds of events: their names. A dict has no kind."""
        self._routes: dict[tuple[str, EventSchema], EventRoute] = {}

    def declare(self, schema: EventSchema, topic: str | None, category: Category | None = None) -> None:
        """Events of this schema go to `topic`, and dicts that go to `topic` are of this schema; the topic is one of `category`.

        ValueError where another schema has been declared for the topic, or no topic can have this name. With a naming of subjects that
        allows several, dicts for that topic need `schema` from then on; and events of a schema that was declared for
        several topics need `topic`.
        """
        own: list[object] = [each for each in (schema, schema.python_type) if each is not None]
        try:
            self._declare(schema, own, topic, category)
        except ValueError as error:
            self._refuse(own, schema.topic if topic is None else topic, f"{schema.name} could not be declared: {error}")
            raise

    def _refuse(self, own: list[object], topic: object, reason: str) -> None:
        """Events of these go neither to that topic nor to the default one, even if the registry would take the schema."""
        if isinstance(topic, str):
            with self._lock:
                for each in own:
                    refused = self._refused.setdefault(each, {})
                    refused.pop(topic, None)
                    refused[topic] = reason
                    self._known.pop((topic, each), None)
                    if each not in self._declared:
                        self._known.pop((None, each), None)

    def _declare(self, schema: EventSchema, own: list[object], topic: str | None, category: Category | None) -> None:
        with self._lock:
            route = self._route(schema.topic if topic is None else topic, schema)
            known = self._known.get((route.topic, dict), route)
            if known.schema.text != schema.text and self._naming == "topic":
                raise _several_kinds(known)
            if route.topic in self._several or known.schema.text != schema.text:
                kinds = self._several.setdefault(route.topic, [known.schema.name])
                if schema.name not in kinds:
                    kinds.append(schema.name)
                for kind in [kind for kind in self._known if kind[0] == route.topic and _is_dict(kind[1])]:
                    del self._known[kind]
            else:
                self._known[route.topic, dict] = known
            if category is not None:
                self._categories[route.topic] = category
            for each in own:
                declared = self._declared.setdefault(each, {})
                declared[route.topic] = schema
                self._known[None, each] = route
                if len(declared) > 1:
                    del self._known[None, each]
                self._refused.get(each, {}).pop(route.topic, None)

    def find(self, kind: object, topic: str | None) -> EventRoute:
        """The route of events of a type, or of a schema (dict: of the topic's). ValueError where their schema is unknown.

        TypeError for what is neither type nor schema.
        """
        try:
            found = self._known.get((topic, kind))
        except TypeError:  # one of the two is no key
            if topic is not None:
                check_topic(topic)
            raise _no_schema(kind) from None
        return found if found is not None else self._learn(kind, topic)

    def _learn(self, kind: object, topic: str | None) -> EventRoute:
        if topic is not None:
            check_topic(topic)
        with self._lock:
            if (topic, kind) in self._known:  # since a moment ago
                return self._known[topic, kind]
            declared, refused = self._declared.get(kind), self._refused.get(kind, {})
            if topic in refused:
                raise ValueError(refused[topic])
            if _is_dict(kind) and (topic, dict) in self._known:
                return self._known[topic, dict]
            if _is_dict(kind) and topic in self._several:
                raise ValueError(
                    f"topic {topic} has events of {' and '.join(self._several[topic])}: an event given as a dict needs schema=, "
                    "what declare() has given for its kind"
                )
            if declared:
                schema = declared.get(topic or "", next(iter(declared.values())))
                if topic is None:
                    raise ValueError(f"{schema.name} was declared for topics {' and '.join(declared)}: track() needs topic=")
            elif topic is None and refused:
                raise ValueError(next(reversed(refused.values())))
            elif isinstance(kind, EventSchema):
                schema = kind
            elif not isinstance(kind, type):
                raise _no_schema(kind)
            elif _is_dict(kind):
                raise ValueError(
                    "an event given as a dict needs its schema: declare one for the topic"
                    + (f" {topic}" if topic else ", and pass topic=")
                    + f", or pass schema=: {_MADE_BY}"
                )
            else:
                schema = event_schema(kind)
            route = self._route(schema.topic if topic is None else topic, schema)
            self._check_only_kind(route)
            self._known[topic, kind] = route
            return route

    def _check_only_kind(self, route: EventRoute) -> None:
        """ValueError where the topic was declared for events of another name, and subjects do not distinguish them."""
        known = self._known.get((route.topic, dict))
        if known is not None and known.schema.name != route.schema.name and self._naming == "topic":
            raise _several_kinds(known)

    def _route(self, topic: str, schema: EventSchema) -> EventRoute:
        check_topic(topic)
        return self._routes.setdefault((topic, schema), EventRoute(topic, schema))

    def prefix(self, route: EventRoute) -> bytes:
        """The prefix of values of this route: the first time the registry is asked, and the topic created. Errors name subject or topic."""
        if route.prefix is None:
            subject = subject_of(self._naming, route.topic, route.schema.name)
            with self._lock:
                if route.prefix is None:
                    schema_id = self._ask(subject, route.schema.text)
                    if self._ensure_topic is not None:
                        self._ensure_topic(route.topic, self._categories.get(route.topic, self._category))
                    route.prefix = frame(schema_id, b"")
        return route.prefix

    def _ask(self, subject: str, text: str) -> int:
        try:
            schema_id = self._registry.register(subject, text) if self._auto_register else self._registry.lookup(subject, text).id
            return int(schema_id)
        finally:
            if self._close_registry is not None:  # closed meanwhile: the connection of this question was kept after that
                self._close_registry()

    def close(self, close_registry: Callable[[], None]) -> None:
        """Close the registry; a thread that is using it closes it once more afterwards, without a wait here."""
        self._close_registry = close_registry
        close_registry()


def _is_dict(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, Mapping)


def _several_kinds(known: EventRoute) -> ValueError:
    return ValueError(f"topic {known.topic} has events of {known.schema.name}; several kinds need another subject naming")


def _no_schema(kind: object) -> TypeError:
    return TypeError(f"schema= is what event_schema() has made, not {type(kind).__name__}: {_MADE_BY}")
