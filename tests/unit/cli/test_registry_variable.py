"""A variable stands for `--registry URL`, as MOLDAU_BOOTSTRAP does for `--bootstrap`; an option counts more (F1)."""

import pytest
from click.testing import CliRunner

from moldau.cli.application import application


@pytest.mark.parametrize("command", [("load",), ("audit", "run")])
def test_the_help_names_it(command: tuple[str, ...]) -> None:
    assert "MOLDAU_REGISTRY" in CliRunner().invoke(application, [*command, "--help"]).output


@pytest.mark.parametrize(("options", "named"), [((), "(from MOLDAU_REGISTRY)"), (("--registry", "ftp://option"), "(http://HOST:PORT)")])
def test_it_is_taken_for_the_option(options: tuple[str, ...], named: str) -> None:
    result = CliRunner(env={"MOLDAU_REGISTRY": "ftp://variable"}).invoke(application, ["audit", "run", "--tier", "a", *options])
    assert result.exit_code == 2
    assert "is not a registry's URL (http://HOST:PORT)" in result.output
    assert result.output.rstrip("\n").endswith(named)
