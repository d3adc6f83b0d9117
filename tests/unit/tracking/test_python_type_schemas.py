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
