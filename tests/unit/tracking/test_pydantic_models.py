"""Models of pydantic come back as they were written: by whatever name pydantic wants a value, and with their enums."""

import io
import json
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Any, Literal

import fastavro
import pydantic
import pydantic.dataclasses
import pytest
from pydantic import AliasChoices, AliasPath, ConfigDict, Field

from moldau.tracking import EventError, SchemaError, event_schema
from moldau.tracking.schemas.python_values import builder_of


class Colour(Enum):
    RED = 1
    BLUE = 2


class Size(str, Enum):  # noqa: UP042 - its text is not its value
    SMALL = "s"
    LARGE = "l"


class Rank(IntEnum):
    LOW = 1
    HIGH = 2


class Renamed(pydantic.BaseModel):
    plain: str = "x"
    one: str = Field("x", alias="eins")
    two: str = Field("x", validation_alias="zwei", serialization_alias="due")
    three: str = Field("x", validation_alias=AliasChoices(AliasPath("deep", 0), "drei"))
    swapped: str = Field("x", alias="swopped")
    swopped: str = Field("x", alias="swapped")


class ByName(pydantic.BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    one: str = Field("x", alias="eins")
    deep: str = Field("x", validation_alias=AliasPath("deep", 0))


class Camel(pydantic.BaseModel):
    model_config = ConfigDict(alias_generator=lambda name: name.upper(), extra="forbid")
    order: int
    inner: Renamed | None = None


@pydantic.dataclasses.dataclass
class Checked:
    one: str = Field("x", alias="eins")
    colour: Colour = Colour.RED


class Inner(pydantic.BaseModel):
    colour: Colour = Colour.RED


class Coloured(pydantic.BaseModel):
    model_config = ConfigDict(strict=True)
    colour: Colour = Colour.RED
    size: Size = Size.SMALL
    rank: Rank = Rank.LOW
    maybe: Colour | None = None
    several: list[Size] = []
    by_name: dict[str, Colour] = {}
    nested: list[Inner] = []
    either: Colour | int = 5


class Cat(pydantic.BaseModel):
    kind: Literal["cat"] = "cat"
    name: str


class Dog(pydantic.BaseModel):
    kind: Literal["dog"] = "dog"
    name: str


class Owner(pydantic.BaseModel):
    pet: Cat | Dog


@dataclass
class Mixed:
    """A model within a dataclass."""

    inner: Coloured
    either: Colour | int


def there_and_back(event: Any) -> Any:
    """Encoded, decoded by fastavro, and built again."""
    schema = event_schema(type(event))
    record = json.loads(schema.text)
    body = fastavro.parse_schema({**record, "fields": record["fields"][1:]})
    return builder_of(type(event))(fastavro.schemaless_reader(io.BytesIO(schema.encode(event)), body, None))


COLOURED = Coloured(
    colour=Colour.BLUE,
    size=Size.LARGE,
    rank=Rank.HIGH,
    maybe=Colour.BLUE,
    several=[Size.LARGE, Size.SMALL],
    by_name={"a": Colour.BLUE},
    nested=[Inner(colour=Colour.BLUE)],
    either=Colour.BLUE,
)
RENAMED = Renamed.model_validate({"plain": "0", "eins": "1", "zwei": "2", "drei": "3", "swopped": "4", "swapped": "5"})


@pytest.mark.parametrize(
    "event",
    [
        RENAMED,
        ByName.model_validate({"eins": "1", "deep": "2"}),
        Camel.model_validate({"ORDER": 17, "INNER": RENAMED}),
        Checked(eins="1", colour=Colour.BLUE),
        COLOURED,
        Coloured(),
        Owner(pet=Dog(name="Rex")),
        Mixed(COLOURED, Colour.BLUE),
    ],
    ids=lambda event: type(event).__name__,
)
def test_a_model_comes_back_as_it_was(event: Any) -> None:
    """Never with a default in place of what was written: pydantic passes over a name that it does not look for."""
    assert there_and_back(event) == event


def test_a_value_that_pydantic_takes_only_out_of_another_is_refused() -> None:
    """It would be written, and come back as the default."""

    class Deep(pydantic.BaseModel):
        a: str = Field("x", validation_alias=AliasPath("deep", 0))

    class Outer(pydantic.BaseModel):
        inner: list[Deep]

    with pytest.raises(SchemaError, match=r"^Deep\.a: AliasPath.* is no name under which a value that was read can be given"):
        event_schema(Deep)
    with pytest.raises(SchemaError, match=r"^Outer\.inner\[\]\.a: AliasPath"):
        event_schema(Outer)


def test_values_of_enums_that_are_not_their_names_are_refused() -> None:
    """A model that keeps values has no names to write; where they are the same words, nothing is lost."""

    class Valued(pydantic.BaseModel):
        model_config = ConfigDict(use_enum_values=True)
        sizes: list[Size] = []

    with pytest.raises(SchemaError, match=r"^Valued\.sizes: use_enum_values leaves values of Size that are not its members' names"):
        event_schema(Valued)
    named = Enum("named", {"A": "A", "B": "B"})
    model = pydantic.create_model("Model", __config__=ConfigDict(use_enum_values=True), which=(named, ...))
    assert there_and_back(model(which="B")) == model(which="B")


def test_a_field_that_was_never_set_is_reported_by_its_path() -> None:
    """`model_construct` checks nothing."""

    class Line(pydantic.BaseModel):
        price: Decimal
        count: int = 1

    class Bill(pydantic.BaseModel):
        lines: list[Line]
        named: dict[str, Line] = {}

    good = Line(price=Decimal(1))
    for event, path in [
        (Bill.model_construct(), "Bill.lines"),
        (Bill.model_construct(lines=[good, Line.model_construct()]), "Bill.lines[1].price"),
        (Bill.model_construct(lines=[], named={"a": good, "b": Line.model_construct()}), 'Bill.named["b"].price'),
    ]:
        with pytest.raises(EventError, match="is missing") as caught:
            event_schema(Bill).encode(event)
        assert caught.value.path == path
