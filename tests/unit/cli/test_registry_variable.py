"""A variable stands for `--registry URL`, as MOLDAU_BOOTSTRAP does for `--bootstrap`; an option counts more (F1).

What is wrong with the address is told with where it came from: who gave no option looks at the variable last.
"""

from pathlib import Path

import pytest
from click.testing import CliRunner

from moldau.cli import load
from moldau.cli.application import application
from moldau.cli.options import naming_source
from moldau.registry.client_errors import IncompatibleSchemaError, RegistryError, RegistryUnavailableError
from moldau.registry.rest_connection import RestConnection

JOB = 'name = "w"\ntopics = ["t"]\n'
WRONG, UNHEARD = "ftp://variable", "http://127.0.0.1:1"


@pytest.mark.parametrize("command", [("load",), ("audit", "run")])
def test_the_help_names_it(command: tuple[str, ...]) -> None:
    assert "MOLDAU_REGISTRY" in CliRunner().invoke(application, [*command, "--help"]).output


@pytest.mark.parametrize("command", [("load", "--name", "w", "--topics", "t", "--to", "lake"), ("audit", "run", "--tier", "a")])
@pytest.mark.parametrize(("options", "named"), [((), "MOLDAU_REGISTRY"), (("--registry", "ftp://option"), "--registry")])
def test_it_is_taken_for_the_option(command: tuple[str, ...], options: tuple[str, ...], named: str) -> None:
    result = CliRunner(env={"MOLDAU_REGISTRY": WRONG}).invoke(application, [*command, *options])
    url = options[-1] if options else WRONG
    assert result.exit_code == 2
    assert f"Invalid value for {named}: '{url}' is not a registry's URL (http://HOST:PORT)" in result.output


@pytest.mark.parametrize(
    ("in_file", "own", "options", "named"),
    [
        ("", "", (), "MOLDAU_REGISTRY"),
        ("", "", ("--registry", UNHEARD), "--registry"),
        (f'registry = "{UNHEARD}/file"\n', "", (), "job.toml"),
        ("", f'[topic.t]\nregistry = "{UNHEARD}"\n', (), "MOLDAU_REGISTRY or job.toml"),
    ],
    ids=["variable", "option", "file", "topic in the file"],
)
def test_a_load_that_gets_no_answer_says_where_the_address_came_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_file: str, own: str, options: tuple[str, ...], named: str
) -> None:
    def unheard(*_: object) -> None:
        raise RegistryUnavailableError(f"no answer from the schema registry at {UNHEARD}: connection refused")

    monkeypatch.setattr(load, "_run", unheard)
    monkeypatch.chdir(tmp_path)
    Path("job.toml").write_text(f"{JOB}{in_file}{own}")
    result = CliRunner(env={"MOLDAU_REGISTRY": UNHEARD}).invoke(application, ["load", "job.toml", "--to", "lake", *options])
    assert result.output.endswith(f"at {UNHEARD}: connection refused (its address is from {named})\n")
    assert result.exit_code == 1


def test_the_default_address_is_named_as_such_where_no_registry_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def unheard(*_: object, **__: object) -> None:
        raise RegistryUnavailableError("no answer")

    monkeypatch.setattr(RestConnection, "request", unheard)
    monkeypatch.delenv("MOLDAU_REGISTRY", raising=False)
    assert "no answer (its address is from the default of --registry)\n" in CliRunner().invoke(application, ["schema", "list"]).output


@pytest.mark.parametrize(("status", "code"), [(422, 42201), (404, 40403), (403, 403)])
def test_what_a_registry_refuses_does_not_name_the_address(status: int, code: int) -> None:
    with pytest.raises(RegistryError) as refused, naming_source("--registry"):
        raise RegistryError(status, code, "Invalid schema of type AVRO")
    assert str(refused.value) == f"Invalid schema of type AVRO (status {status}, code {code})"


def test_the_reason_for_an_incompatible_schema_stays_one_line() -> None:
    with pytest.raises(IncompatibleSchemaError, match=r"subject s: .*: field a$"), naming_source("--registry"):
        raise IncompatibleSchemaError("s", "long", ["field a"])


def test_an_answer_that_is_none_of_a_registry_is_told_with_it_too() -> None:
    """The code and the status of the answer stay what they were."""
    with pytest.raises(RegistryError) as refused, naming_source("--registry"):
        raise RegistryError(404, 404, "/: not found")
    assert str(refused.value) == "/: not found; the registry's address is from --registry (status 404, code 404)"
    assert (refused.value.status, refused.value.code) == (404, 404)
