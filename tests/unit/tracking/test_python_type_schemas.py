"""Dataclasses and pydantic models as schemas: typed, with defaults, and the same values after a trip through Avro."""

import dataclasses
import io
import json
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal
from uuid import UUID

import fastavro
import pydantic
import pytest

from moldau.tracking import DecimalSize, EventError, SchemaError, event_schema
from moldau.tracking.header import HEADER_FIELD
from moldau.tracking.schemas.python_values import builder_of


class Status(Enum):
    NEW = 1
    SENT = 2


@dataclass
class Address:
    street: str
    country: str = "CZ"


@dataclass
class Card:
    number: str


@dataclass
class Cash:
    amount: int


@dataclass
class Order:
    """An order as it was placed.

    More is not needed.
    """

    number: int
    price: Annotated[Decimal, DecimalSize(10, 2)]
    address: Address
    placed: datetime
    due: date
    at: time
    key: UUID
    raw: bytes
    status: Status
    paid: Card | Cash
    share: float = 0.5
    gift: bool = False
    note: str | None = None
    other: Address | None = None
    tags: list[str] = field(default_factory=list)
    history: tuple[Status, ...] = ()
    by_name: dict[str, Address] = field(default_factory=dict)
    kind: Literal["web", "shop"] = "web"
    began: Status = Status.NEW


class Reading(pydantic.BaseModel):
    sensor: str
    value: float | None = None
    amount: Decimal = pydantic.Field(max_digits=8, decimal_places=3)
    where: Address | None = None
    tags: list[str] = pydantic.Field(default_factory=list)


class Node(pydantic.BaseModel):
    status: Status = Status.NEW
    after: "Node | None" = None


def order() -> Order:
    return Order(
        number=17,
        price=Decimal("12.50"),
        address=Address("Na Příkopě 1"),
        placed=datetime(2013, 7, 1, 12, 30, 0, 123456, tzinfo=UTC),
        due=date(2013, 7, 2),
        at=time(12, 30),
        key=UUID(int=7),
        raw=b"\0\xff",
        status=Status.SENT,
        paid=Cash(5),
        note="quick",
        other=Address("Unter den Linden", "DE"),
        tags=["a", "b"],
        history=(Status.NEW, Status.SENT),
        by_name={"home": Address("x")},
    )


def there_and_back(event: Any) -> Any:
    """Encoded, decoded by fastavro, and built again."""
    schema = event_schema(type(event))
    record = json.loads(schema.text)
    body = fastavro.parse_schema({**record, "fields": record["fields"][1:]})
    return builder_of(type(event))(fastavro.schemaless_reader(io.BytesIO(schema.encode(event)), body, None))


def test_a_dataclass_comes_back_as_it_was() -> None:
    assert there_and_back(order()) == order()


def test_a_pydantic_model_comes_back_as_it_was() -> None:
    reading = Reading(sensor="a", value=1.5, amount=Decimal("1.125"), where=Address("x"), tags=["t"])
    assert there_and_back(reading) == reading
    assert there_and_back(Reading(sensor="b", amount=Decimal(1))) == Reading(sensor="b", amount=Decimal("1.000"))


def test_what_a_schema_says_of_a_dataclass() -> None:
    record = event_schema(Order).record
    types = {each["name"]: each["type"] for each in record["fields"]}
    assert record["doc"] == "An order as it was placed."
    assert types["number"] == "long"
    assert types["price"] == {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2}
    assert types["placed"] == {"type": "long", "logicalType": "timestamp-micros"}
    assert types["status"] == {"type": "enum", "name": "Status", "symbols": ["NEW", "SENT"]}
    assert types["note"] == ["null", "string"]
    assert types["other"] == ["null", "Address"], "defined before, called by its name"
    assert types["by_name"] == {"type": "map", "values": "Address"}
    defaults = {each["name"]: each["default"] for each in record["fields"] if "default" in each}
    assert defaults == {
        "share": 0.5,
        "gift": False,
        "note": None,
        "other": None,
        "tags": [],
        "history": [],
        "by_name": {},
        "kind": "web",
        "began": "NEW",
    }


def test_sizes_of_decimals_from_pydantic() -> None:
    types = {each["name"]: each["type"] for each in event_schema(Reading).record["fields"]}
    assert types["amount"] == {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 3}


def decimal(precision: int, scale: int) -> dict[str, Any]:
    return {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}


def test_sizes_of_decimals_that_may_be_missing_or_are_within_something() -> None:
    """What is said of a field holds for its decimal in a union; what is said within the type is nearer, and counts more."""

    class Priced(pydantic.BaseModel):
        maybe: Decimal | None = pydantic.Field(None, max_digits=8, decimal_places=2)
        whole: Decimal | None = pydantic.Field(max_digits=8)
        several: list[Annotated[Decimal, pydantic.Field(max_digits=7, decimal_places=3)]] = []
        by_name: dict[str, Annotated[Decimal | None, DecimalSize(6, 1)]] = {}
        nearer: Annotated[Decimal, DecimalSize(5, 1)] | None = pydantic.Field(Decimal("1.5"), max_digits=9, decimal_places=2)
        deep: dict[str, list[pydantic.condecimal(max_digits=4, decimal_places=2) | str]] = {}  # type: ignore[valid-type]

    types = {each["name"]: each["type"] for each in event_schema(Priced).record["fields"]}
    assert types["maybe"] == ["null", decimal(8, 2)]
    assert types["whole"] == [decimal(8, 0), "null"]
    assert types["several"]["items"] == decimal(7, 3)
    assert types["by_name"]["values"] == [decimal(6, 1), "null"]
    assert types["nearer"] == [decimal(5, 1), "null"]
    assert types["deep"]["values"]["items"] == [decimal(4, 2), "string"]
    made = dataclasses.make_dataclass("Plain", [("price", Annotated[Decimal | None, DecimalSize(10, 2)])])
    (_, field_) = event_schema(made).record["fields"]
    assert field_["type"] == [decimal(10, 2), "null"]
    event = Priced(
        nearer=Decimal("2.5"),
        maybe=Decimal("1.25"),
        whole=Decimal(3),
        several=[Decimal("0.125")],
        by_name={"a": None},
        deep={"b": [Decimal("1.25")]},
    )
    assert there_and_back(event) == event


@pytest.mark.parametrize(
    ("hint", "default", "type_", "in_json"),
    [
        (None | str, "x", ["string", "null"], "x"),
        (str | None, None, ["null", "string"], None),
        (int | str | None, "x", ["string", "long", "null"], "x"),
        (float | int, 3, ["double", "long"], 3),
        (int | float, 1.5, ["double", "long"], 1.5),
        (bytes | str, "x", ["string", "bytes"], "x"),
        (None | Decimal, Decimal("1.5"), [decimal(38, 9), "null"], "Y\u0068\u002f\u0000"),
        (list[str | None], [None, "x"], {"type": "array", "items": ["null", "string"]}, [None, "x"]),
        (dict[str, int | list[int | str]], {"a": ["x"]}, None, {"a": ["x"]}),
        (None | list[str], ["x"], [{"type": "array", "items": "string"}, "null"], ["x"]),
        (dict[str, int], None, {"type": "map", "values": "long"}, SchemaError),
    ],
    ids=str,
)
def test_a_default_is_of_the_first_branch_of_its_union(hint: Any, default: Any, type_: Any, in_json: Any) -> None:
    """By Avro's rules: another reader would refuse the schema, or take text for bytes. Within lists and dicts it is the first element's."""
    model = pydantic.create_model("Given", given=(hint, default))
    if in_json is SchemaError:
        with pytest.raises(SchemaError, match="Given"):
            event_schema(model)
        return
    schema = event_schema(model)
    (_, field_) = schema.record["fields"]
    if type_ is None:
        type_ = {"type": "map", "values": [{"type": "array", "items": ["string", "long"]}, "long"]}
    assert (field_["type"], field_["default"]) == (type_, in_json)
    assert there_and_back(model()) == model()


def test_a_type_in_a_union_is_defined_where_it_comes_first() -> None:
    """Moving a branch to the front takes its definition with it; a type of its own kind within it is not followed for ever."""

    class Holding(pydantic.BaseModel):
        given: Node | list[Node] | None = [Node()]

    (_, field_) = event_schema(Holding).record["fields"]
    assert [each if isinstance(each, str) else each["type"] for each in field_["type"]] == ["array", "Node", "null"]
    assert field_["default"] == [{"status": "NEW", "after": None}]
    assert there_and_back(Holding()) == Holding()


def test_a_value_of_another_type_than_was_declared_is_refused_with_its_path() -> None:
    bad = order()
    bad.address.country = 5  # type: ignore[assignment]
    with pytest.raises(EventError, match=r"^Order\.address\.country: needs text, not 5 \(int\)"):
        event_schema(Order).encode(bad)


@pytest.mark.parametrize(
    ("value", "text"),
    [("1.5", "\0\u0096"), ("0", "\0"), ("-0.01", "\u00ff"), ("1.27", "\u007f"), ("1.28", "\0\u0080"), ("-1.28", "\u0080"), ("3E+2", "u0")],
)
def test_a_decimal_default_is_avros_bytes(value: str, text: str) -> None:
    made = dataclasses.make_dataclass("Priced", [("price", Annotated[Decimal, DecimalSize(10, 2)], Decimal(value))])
    model = pydantic.create_model("Priced", price=(Decimal, pydantic.Field(Decimal(value), max_digits=10, decimal_places=2)))
    for each in (made, model):
        (_, field_) = event_schema(each).record["fields"]
        assert field_["default"] == text
        assert there_and_back(each()).price == Decimal(value)


@pytest.mark.parametrize("value", ["1.234", "NaN", "123456789"])
def test_a_decimal_default_that_does_not_fit_is_refused(value: str) -> None:
    made = dataclasses.make_dataclass("Priced", [("price", Annotated[Decimal, DecimalSize(10, 2)], Decimal(value))])
    with pytest.raises(SchemaError, match=r"^Priced\.price: the default"):
        event_schema(made)


def test_types_that_no_schema_can_say() -> None:
    @dataclass
    class Strange:
        what: Any

    @dataclass
    class Numbered:
        of: dict[int, str]

    @dataclass
    class Twice:
        number: int | datetime

    for type_, message in [
        (Strange, r"Strange\.what: no Avro type for typing\.Any"),
        (Numbered, r"Numbered\.of: no Avro type .*dicts have text as keys"),
        (Twice, r"Twice\.number: a union has each Avro type once: long, long"),
        (int, "int is neither a dataclass nor a pydantic model"),
    ]:
        with pytest.raises(SchemaError, match=message):
            event_schema(type_)


def test_a_dataclass_with_a_field_called_header_is_refused() -> None:
    @dataclass
    class Page:
        header: str

    assert HEADER_FIELD == "header"
    with pytest.raises(SchemaError, match=r"^Page\.header: is the header of tracked events"):
        event_schema(Page)
