"""The events of `tracking.py`: a dict of ten simple fields; orders of nine fields of mixed types, as dataclasses and pydantic models."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

import pydantic

from moldau.tracking.routes import SchemaSource
from support.tracked_events import TEN_FIELDS, page_view


class Status(Enum):
    """Of an order."""

    NEW = 1
    PAID = 2
    SENT = 3


@dataclass
class Address:
    """Within an order."""

    street: str
    zip_code: int


@dataclass
class OrderPlaced:
    """Nine fields of mixed types."""

    order: int
    customer: str
    placed: datetime
    amount: Decimal
    note: str | None
    status: Status
    items: list[str]
    address: Address
    weight: float


class AddressModel(pydantic.BaseModel):
    """The same as pydantic has it."""

    street: str
    zip_code: int


class OrderModel(pydantic.BaseModel):
    """The same as pydantic has it."""

    order: int
    customer: str
    placed: datetime
    amount: Decimal
    note: str | None
    status: Status
    items: list[str]
    address: AddressModel
    weight: float


def order(type_: type[Any], address: type[Any], number: int) -> Any:
    """An order of one of the two types."""
    return type_(
        order=100_000 + number,
        customer=f"customer {number % 1000}",
        placed=datetime(2013, 7, 1, 12, 0, number % 60, number * 997 % 1_000_000, UTC),
        amount=Decimal(number * 7) / 100,
        note=None if number % 3 else "leave it at the door",
        status=(Status.NEW, Status.PAID, Status.SENT)[number % 3],
        items=["book", "pen", "lamp"][: 1 + number % 3],
        address=address(street="Dlouhá 12", zip_code=11_000),
        weight=0.25 + number,
    )


KINDS: dict[str, tuple[SchemaSource, Callable[[int], Any]]] = {
    "dict": (TEN_FIELDS, page_view),
    "dataclass": (OrderPlaced, lambda number: order(OrderPlaced, Address, number)),
    "pydantic": (OrderModel, lambda number: order(OrderModel, AddressModel, number)),
}
"""By name: what the schema is made from, and the event of a number."""
