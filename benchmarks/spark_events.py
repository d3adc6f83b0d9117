"""What stands in the topics of `spark_read.py`: values of 200 bytes, events of a flight among them."""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

from moldau.registry.wire import frame
from support.avro_registry import encoded

SIZE = 200
"""Bytes of a value, about, where it is an event."""
HEADER = {
    "type": "record",
    "name": "EventHeader",
    "fields": [
        {"name": "time", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "service", "type": "string"},
        {"name": "host", "type": "string"},
        {"name": "datacenter", "type": "string"},
        {"name": "guid", "type": {"type": "fixed", "name": "Guid", "size": 16}},
    ],
}
FIELDS = [
    {"name": "header", "type": HEADER},
    {"name": "carrier", "type": "string"},
    {"name": "flight", "type": "int"},
    {"name": "tailnum", "type": ["null", "string"]},
    {"name": "origin", "type": {"type": "enum", "name": "Origin", "symbols": ["EWR", "JFK", "LGA"]}},
    {"name": "dest", "type": "string"},
    {"name": "dep_delay", "type": ["null", "double"]},
    {"name": "arr_delay", "type": ["null", "double"]},
    {"name": "distance", "type": "long"},
    {"name": "day", "type": {"type": "int", "logicalType": "date"}},
    {"name": "cancelled", "type": "boolean"},
    {"name": "remark", "type": "string"},
]
SCHEMA = json.dumps({"type": "record", "name": "Flight", "fields": FIELDS})
LIST_SCHEMA = json.dumps(
    {"type": "record", "name": "Flight", "fields": [*FIELDS, {"name": "stops", "type": {"type": "array", "items": "string"}}]}
)
UNION_SCHEMA = json.dumps({"type": "record", "name": "Flight", "fields": [*FIELDS, {"name": "gate", "type": ["null", "string", "long"]}]})


def plain_values() -> list[bytes]:
    """Values without a meaning."""
    return [b"%012d" % number + b"x" * (SIZE - 12) for number in range(1000)]


def avro_values(schema: str, schema_id: int) -> list[bytes]:
    """Events of this schema, as they stand in a record; of the fields above it has those that it names."""
    parsed, values = json.loads(schema), []
    for number in range(1000):
        header = {
            "time": 1_357_000_000_000 + number * 1000,
            "service": "departures",
            "host": "jfk-1",
            "datacenter": "nyc",
            "guid": bytes(16),
        }
        event = {
            "header": header, "carrier": "UA", "flight": number * 7, "tailnum": None if number % 50 == 0 else f"N{number:05}",
            "origin": ("EWR", "JFK", "LGA")[number % 3], "dest": "IAH", "dep_delay": None if number % 40 == 0 else float(number % 60),
            "arr_delay": number / 7, "distance": number * 3, "day": 15_706, "cancelled": number % 9 == 0, "remark": "r" * 95,
            "stops": ["ORD", "DEN"], "gate": number if number % 2 else f"B{number}",
        }  # fmt: skip
        values.append(frame(schema_id, encoded(parsed, event)))
    return values
