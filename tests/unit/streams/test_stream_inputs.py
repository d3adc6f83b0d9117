"""What an input says of events that it does not take."""

from typing import Any

import pytest
from pyspark.errors import AnalysisException

from moldau.streams import inputs
from moldau.streams.inputs import TopicInput

TEXT = """[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback (most recent call last):
  File "source.py", line 56, in schema
{}
"""


class Reader:
    """Of Spark, for a source that refuses its options."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def options(self, **_: Any) -> "Reader":
        return self

    def load(self) -> Any:
        raise AnalysisException(TEXT.format(self._problem))


@pytest.mark.parametrize("name", ["event_time", "_watermark", "_offset"])
def test_a_field_with_the_name_of_a_column_that_the_source_adds(name: str) -> None:
    """It is said in a line, as of other names of every input."""
    given = TopicInput("flights", format="avro", registry="http://r:1")
    reader = Reader(f"OptionError: eventTime: would add a column {name}, which is a field of the events")
    with pytest.raises(ValueError, match=f"^topic flights: a field of its events has the name {name}, which is a column of every input$"):
        inputs._registered(reader, given, "")


def test_another_problem_is_raised_as_it_is() -> None:
    given = TopicInput("flights", format="avro", registry="http://r:1")
    with pytest.raises(AnalysisException, match="no such subject"):
        inputs._registered(Reader("OptionError: subject: no such subject"), given, "")
