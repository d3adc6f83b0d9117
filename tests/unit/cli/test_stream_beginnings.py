"""Where a reprocessing begins, as it is written on the command line."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from moldau.cli.application import application
from moldau.cli.stream_reprocess import beginning


def test_the_forms_of_a_beginning() -> None:
    assert beginning("earliest") == "earliest"
    assert beginning("2013-01-01") == 1_356_998_400_000
    assert beginning('{"flights": {"0": 5, "1": 7}}') == {"flights": {"0": 5, "1": 7}}


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (["--from", "long ago"], "'long ago' is not a time: write a duration ago"),
        (["--from", '{"flights": 5}'], "topic 'flights' needs an object of partitions and numbers, not 5"),
        (["--from", "{"], "is not JSON"),
        (["--from", "earliest", "--from-savepoint", "/s"], "--from and --from-savepoint exclude each other"),
    ],
)
def test_mistakes_are_refused_before_the_file_is_read(words: list[str], problem: str, tmp_path: Path) -> None:
    file = tmp_path / "job.py"
    file.write_text("1 / 0")
    done = CliRunner().invoke(application, ["stream", "reprocess", str(file), *words])
    assert done.exit_code == 2
    assert problem in done.output
