"""Which topic and schema an event has: said once, registered once, under the subject of the naming strategy."""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest

from moldau.registry.client_errors import RegistryError
from moldau.tracking import event_schema
from moldau.tracking.routes import EnsureTopic, Routes, SubjectNaming, subject_of
from moldau.tracking.topics import LOGS, TRACKING, Category
from support.tracked_events import TEN_FIELDS, MemoryRegistry

VIEW = event_schema(TEN_FIELDS)


@dataclass
class Click:
    page: str


def routes(
    registry: MemoryRegistry, naming: SubjectNaming = "topic", *, auto_register: bool = True, ensure: EnsureTopic | None = None
) -> Routes:
    return Routes(registry, naming, auto_register=auto_register, ensure_topic=ensure)


def test_subjects_by_confluents_strategies() -> None:
    assert subject_of("topic", "views", "shop.PageView") == "views-value"
    assert subject_of("record", "views", "shop.PageView") == "shop.PageView"
    assert subject_of("topic-record", "views", "shop.PageView") == "views-shop.PageView"


def test_a_schema_is_registered_once() -> None:
    registry = MemoryRegistry()
    known = routes(registry)
    known.declare(VIEW, "views")
    threads = [threading.Thread(target=lambda: known.prefix(known.find(dict, "views"))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert registry.asked == ["register views-value"]
    assert known.prefix(known.find(dict, "views")) == b"\0\0\0\0\1"


def test_where_events_go() -> None:
    known = routes(MemoryRegistry())
    known.declare(VIEW, None)
    assert known.find(dict, "PageView").schema is VIEW
    assert known.find(VIEW, None).topic == "PageView"
    assert known.find(VIEW, "elsewhere").topic == "elsewhere"
    assert known.find(Click, None).topic == "Click", "a type makes its own schema"
    declared = event_schema(Click)
    known.declare(declared, "clicks")
    assert known.find(Click, "more-clicks").schema is declared


def test_a_type_that_was_declared_goes_where_that_was_said() -> None:
    known = routes(MemoryRegistry())
    known.declare(event_schema(Click), "clicks")
    assert known.find(Click, None).topic == "clicks"
    assert known.find(dict, "clicks").schema.python_type is Click


def test_a_kind_that_was_declared_for_several_topics_says_where_it_goes() -> None:
    """It would go to one of them by chance. As long as there is one, nothing has to be said."""
    known, click = routes(MemoryRegistry()), event_schema(Click)
    known.declare(click, "clicks")
    known.declare(event_schema(Click), "clicks")
    assert known.find(Click, None).topic == "clicks"
    known.declare(click, "more-clicks")
    for kind in (Click, click):
        with pytest.raises(ValueError, match=r"Click was declared for topics clicks and more-clicks: track\(\) needs topic="):
            known.find(kind, None)
        for topic in ("clicks", "more-clicks", "elsewhere"):
            assert (known.find(kind, topic).topic, known.find(kind, topic).schema.python_type) == (topic, Click)
    assert known.find(dict, "more-clicks").schema is click


def test_a_type_that_could_not_be_declared_goes_nowhere_by_itself() -> None:
    """A program that catches the refusal and continues would find its events in a topic that it did not ask for."""
    known = routes(MemoryRegistry())
    known.declare(VIEW, "views")
    for topic, message in (("views", "topic views has events of"), ("", "topic ''")):
        with pytest.raises(ValueError, match=message):
            known.declare(event_schema(Click), topic)
        with pytest.raises(ValueError, match=rf"^Click could not be declared: {message}"):
            known.find(Click, None)
    assert known.find(Click, "elsewhere").topic == "elsewhere"
    known.declare(event_schema(Click), "clicks")
    assert known.find(Click, None).topic == "clicks"


def test_what_was_refused_for_a_topic_is_not_tracked_there_either() -> None:
    """Were it left to the registry, one without compatibility checks would take it. It was known before, and is elsewhere."""
    registry = MemoryRegistry()
    known, click = routes(registry), event_schema(Click)
    earlier = known.find(Click, "views")
    known.declare(VIEW, "views")
    with pytest.raises(ValueError, match="several kinds"):
        known.declare(click, "views")
    known.declare(click, "clicks")
    same_name = event_schema({**TEN_FIELDS, "fields": TEN_FIELDS["fields"][:1]})
    with pytest.raises(ValueError, match="several kinds"):
        known.declare(same_name, "views")
    for kind, name in ((click, "Click"), (same_name, r"shop\.PageView")):
        with pytest.raises(ValueError, match=rf"^{name} could not be declared: topic views has events of shop\.PageView; several kinds"):
            known.find(kind, "views")
    assert known.find(Click, "clicks").topic == "clicks" != earlier.topic
    assert registry.asked == []


def test_a_kind_that_was_not_declared_does_not_come_into_a_topic_of_another() -> None:
    """A later schema of the same name may: whether it fits is for the registry to say."""
    known = routes(MemoryRegistry())
    known.declare(VIEW, "views")
    for kind in (Click, event_schema(Click)):
        with pytest.raises(ValueError, match=r"^topic views has events of shop\.PageView; several kinds need another subject naming"):
            known.find(kind, "views")
    later = event_schema({**TEN_FIELDS, "fields": [*TEN_FIELDS["fields"], {"name": "more", "type": "int", "default": 0}]})
    assert known.find(later, "views").schema is later
    several = routes(MemoryRegistry(), "record")
    several.declare(VIEW, "views")
    assert several.find(Click, "views").schema.python_type is Click


def test_a_dict_needs_a_schema() -> None:
    known = routes(MemoryRegistry())
    with pytest.raises(ValueError, match="needs its schema: declare one for the topic views, or pass schema="):
        known.find(dict, "views")
    with pytest.raises(ValueError, match="and pass topic="):
        known.find(dict, None)
    with pytest.raises(ValueError, match="declare one for the topic views"):
        known.find(OrderedDict, "views")
    known.declare(VIEW, "views")
    assert known.find(OrderedDict, "views").schema is VIEW


def test_a_topic_has_one_kind_of_event_unless_subjects_tell_them_apart() -> None:
    known = routes(MemoryRegistry())
    known.declare(VIEW, "views")
    known.declare(event_schema(TEN_FIELDS), "views")
    with pytest.raises(ValueError, match=r"topic views has events of shop\.PageView; several kinds need another subject naming"):
        known.declare(event_schema(Click), "views")


def test_a_dict_for_a_topic_with_several_kinds_says_which_it_is() -> None:
    """It would be held against one of them by chance. Who says it, by a type or by the schema, is understood as before."""
    several, click = routes(MemoryRegistry(), "record"), event_schema(Click)
    several.declare(VIEW, "views")
    several.declare(VIEW, "views")
    assert several.find(dict, "views").schema is VIEW
    assert several.find(OrderedDict, "views").schema is VIEW
    several.declare(click, "views")
    for kind in (dict, OrderedDict):
        with pytest.raises(ValueError, match=r"topic views has events of shop\.PageView and Click: an event given as a dict needs schema="):
            several.find(kind, "views")
    several.declare(VIEW, "views")
    with pytest.raises(ValueError, match="topic views has events of"):
        several.find(dict, "views")
    assert several.find(VIEW, "views").schema is VIEW
    assert several.find(click, "views").schema is click
    assert (several.find(Click, None).topic, several.find(Click, "views").schema) == ("views", click)


def test_without_registering_a_schema_has_to_be_there() -> None:
    registry = MemoryRegistry()
    known = routes(registry, auto_register=False)
    known.declare(VIEW, "views")
    with pytest.raises(RegistryError, match="views-value"):
        known.prefix(known.find(dict, "views"))
    registry.register("views-value", VIEW.text)
    assert known.prefix(known.find(dict, "views")) == b"\0\0\0\0\1"


@pytest.mark.parametrize(
    "topic", ["_audit", "_schemas", "__consumer_offsets", "a b", "ä", "views\n", ".", "..", "", "x" * 250, 5, ["views"]]
)
def test_a_topic_that_events_cannot_have_is_refused_before_the_registry_hears_of_it(topic: Any) -> None:
    """Whatever stands in the topics of the cluster and the audit is read by them."""
    registry = MemoryRegistry()
    known = routes(registry)
    for use in (lambda: known.declare(VIEW, topic), lambda: known.find(VIEW, topic), lambda: known.find(Click, topic)):
        with pytest.raises(ValueError, match="topic"):
            use()
    hidden = event_schema({**TEN_FIELDS, "name": "_Hidden"})
    with pytest.raises(ValueError, match="topic _Hidden: names that begin with '_'"):
        known.declare(hidden, None)
    assert registry.asked == []


@pytest.mark.parametrize("schema", [TEN_FIELDS, "schemas/page_view.avsc", 5])
def test_a_schema_is_made_before_it_is_given(schema: Any) -> None:
    """Making one takes far longer than an event does: it is not done for each."""
    with pytest.raises(TypeError, match=r"schema= is what event_schema\(\) has made, not (dict|str|int): schema = event_schema"):
        routes(MemoryRegistry()).find(schema, "views")


def test_another_naming_of_subjects_is_refused_at_once() -> None:
    naming: Any = "zzz"
    with pytest.raises(ValueError, match="subject_naming is one of topic, record, topic-record, not 'zzz'"):
        routes(MemoryRegistry(), naming)


def test_a_topic_is_made_once_as_its_category_wants_it() -> None:
    """When the registry has taken the schema; what could not be made is tried again with the next event."""
    made: list[tuple[str, Category]] = []
    registry = MemoryRegistry()

    def ensure(topic: str, kind: Category) -> None:
        made.append((topic, kind))
        if len(made) == 1:
            raise ConnectionError("nobody there")

    known = routes(registry, ensure=ensure)
    known.declare(VIEW, "views")
    known.declare(event_schema(Click), "lines", LOGS)
    with pytest.raises(ConnectionError):
        known.prefix(known.find(dict, "views"))
    for topic in ("views", "lines", "views"):
        known.prefix(known.find(dict, topic))
    assert made == [("views", TRACKING), ("views", TRACKING), ("lines", LOGS)]


def test_a_registry_that_is_closed_while_it_is_asked_is_closed_after_the_question() -> None:
    """The connection of that question would stay open for ever: a thread of log lines is still at it when the producer ends."""
    open_connections: set[str] = set()

    class Connected(MemoryRegistry):
        def register(self, subject: str, text: str) -> int:
            known.close(open_connections.clear)
            open_connections.add(subject)
            return super().register(subject, text)

    known = routes(Connected())
    known.declare(VIEW, "views")
    known.prefix(known.find(dict, "views"))
    assert open_connections == set()
