"""What a load is told counts in this order: the command line, the job file, the environment, the default (I1)."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from moldau.cli import load

if TYPE_CHECKING:
    from moldau.lake.loading.job import LoadJobs

VARIABLES = {"MOLDAU_BOOTSTRAP": "variable:1", "MOLDAU_REGISTRY": "http://variable"}
IN_THE_FILE = 'bootstrap = "file:1"\nregistry = "http://file"\n'
OPTIONS = ("--bootstrap", "option:1", "--registry", "http://option")


@pytest.mark.parametrize(
    ("options", "content", "variables", "wanted"),
    [
        (OPTIONS, IN_THE_FILE, VARIABLES, ("option:1", "http://option")),
        ((), IN_THE_FILE, VARIABLES, ("file:1", "http://file")),
        ((), "", VARIABLES, ("variable:1", "http://variable")),
        ((), 'registry = "http://file"\n', {}, ("127.0.0.1:9092", "http://file")),
        (OPTIONS, None, VARIABLES, ("option:1", "http://option")),
        ((), None, VARIABLES, ("variable:1", "http://variable")),
    ],
    ids=["options", "file", "variables", "default", "options without a file", "variables without a file"],
)
def test_what_counts(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    content: str | None,
    variables: dict[str, str],
    wanted: tuple[str, str],
) -> None:
    given: list[LoadJobs] = []

    def run(jobs: Any, *_: object) -> int:
        given.append(jobs)
        return 0

    monkeypatch.setattr(load, "_run", run)
    words = ["--name", "w", "--topics", "t", "--to", str(tmp_path), *options]
    if content is not None:
        file = tmp_path / "job.toml"
        file.write_text(content)
        words.append(str(file))
    result = CliRunner(env={**dict.fromkeys(VARIABLES, None), **variables}).invoke(load.load_command, words)
    assert result.exit_code == 0, result.output
    assert [(jobs.bootstrap_servers, jobs.registry) for jobs in given] == [wanted]
