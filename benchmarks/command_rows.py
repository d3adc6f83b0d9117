"""The rows of commands beside other people's: ``moldau consume`` beside kcat, less time is better."""

from collections.abc import Iterator

from row import Row, Summary, median

KCAT_BOUND = 2.0
"""Of values; where kcat has a format, it is slower than we are."""


def command_rows(lines: list[Summary]) -> Iterator[Row]:
    """The rows, in the order of the lines."""
    found = {(line["system"], line["codec"], line["format"]): line for line in lines if line["test"] == "consume-cli"}
    for (system, codec, format_), ours in found.items():
        theirs = found.get(("kcat", codec, format_))
        if system == "moldau" and theirs is not None:
            cell = f"consume {ours['records']:,} records, {format_}, batches: {codec}, s"
            yield Row(cell, median(ours["seconds"]), median(theirs["seconds"]), KCAT_BOUND if format_ == "values" else None, False)
