"""The README runs as it is printed: from the wheel that `make dist` makes, in a new environment, command by command."""

import os
import re
import subprocess
import sys
import venv
import zipfile
from collections.abc import Container, Iterator
from pathlib import Path

import pytest

from support.pages import README, ROOT, block_with
from support.registry_process import RegistryProcess
from support.server import ServerProcess

pytestmark = pytest.mark.system

LIMIT_S = 300
SITE_PACKAGES = Path(pytest.__file__).parents[1]


class Environment:
    """A virtual environment with the wheel; dependencies are those of this one, so that nothing is fetched."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        subprocess.run(
            [sys.executable, "-m", "hatchling", "build", "--directory", directory / "dist"],
            cwd=ROOT,
            env=_clean(),
            check=True,
            capture_output=True,
        )
        (self.wheel,) = directory.glob("dist/*.whl")
        venv.create(directory / "env", with_pip=True)
        self._bin = directory / "env" / "bin"
        self.run("""pip install --quiet --disable-pip-version-check --no-deps --no-index "$(ls dist/*.whl)[client]" """)
        (own,) = directory.glob("env/lib/python*/site-packages")
        (own / "others.pth").write_text(f"{SITE_PACKAGES}\n")

    def popen(self, script: str, **variables: str) -> "subprocess.Popen[str]":
        """Start a shell script with the environment's programs first in the path."""
        environment = {**_clean(), "PATH": f"{self._bin}{os.pathsep}{os.environ['PATH']}", "PYSPARK_PYTHON": str(self._bin / "python")}
        return subprocess.Popen(
            ["sh", "-e", "-c", script],
            cwd=self.directory,
            env={**environment, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def run(self, script: str, codes: Container[int] = (0,), **variables: str) -> str:
        """What a shell script prints; its exit code is one of `codes`."""
        process = self.popen(script, **variables)
        text, _ = process.communicate(timeout=LIMIT_S)
        assert process.returncode in codes, text
        return text


def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PYTHON", "MOLDAU"))}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return Environment(tmp_path_factory.mktemp("readme"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("data") / "d") as server:
        yield server


@pytest.fixture(scope="module")
def registry(server: ServerProcess) -> Iterator[str]:
    with RegistryProcess(server.bootstrap) as registry:
        yield registry.url


def test_the_wheel_is_what_a_user_needs_and_names_nothing_of_the_machine_that_made_it(environment: Environment) -> None:
    home = str(Path.home())
    with zipfile.ZipFile(environment.wheel) as wheel:
        assert {name.split("/")[0].split("-")[0] for name in wheel.namelist()} == {"moldau", "pyspark_moldau"}
        for name in wheel.namelist():
            text = wheel.read(name).decode(errors="replace")
            assert str(ROOT) not in text, name
            assert home not in text, name
    assert str(environment.directory) in environment.run("python -c 'import moldau; print(moldau.__file__)'")


def test_an_extra_is_added_by_the_command_that_messages_name(environment: Environment) -> None:
    """Moldau itself is not looked for: pip takes the list of the extra from the wheel that is installed."""
    said = environment.run("pip install --dry-run --disable-pip-version-check --no-index 'moldau[tracking]'")
    assert "already satisfied: moldau[tracking] in ./env/" in said
    assert "xxhash" in said


def test_one_minute(environment: Environment, server: ServerProcess) -> None:
    printed = environment.run(block_with(README, "sh", "moldau consume events"), MOLDAU_BOOTSTRAP=server.bootstrap)
    assert {"one", "two"} <= set(printed.splitlines())

    program = block_with(README, "python", "Consumer, Producer").replace("localhost:9092", server.bootstrap)
    (environment.directory / "minute.py").write_text(program)
    assert sorted(environment.run("python minute.py").splitlines()) == ["None b'one'", "None b'two'", "b'k' b'hello'"]


def test_the_test_in_the_readme_passes_as_it_is_printed(environment: Environment) -> None:
    (environment.directory / "test_orders.py").write_text(block_with(README, "python", "moldau_topic"))
    assert "1 passed" in environment.run("python -m pytest -q -W error -p no:cacheprovider -p no:anyio test_orders.py")


@pytest.mark.spark
def test_spark_shows_texts(environment: Environment, server: ServerProcess) -> None:
    environment.run("printf 'k:from the shell\\n' | moldau produce events --key-separator :", MOLDAU_BOOTSTRAP=server.bootstrap)
    program = block_with(README, "python", "SparkSession").replace("localhost:9092", server.bootstrap)
    (environment.directory / "show.py").write_text(program)
    shown = environment.run("python show.py")
    assert re.search(r"\|\s+k\|\s*from the shell\|\s*events\|", shown), shown


@pytest.mark.spark
def test_the_pipeline(environment: Environment, server: ServerProcess, registry: str) -> None:
    def adapted(text: str) -> str:
        return text.replace("http://127.0.0.1:8081", registry)

    program = adapted(block_with(README, "python", "TrackerProducer"))
    (environment.directory / "shop.py").write_text(program.replace("service=", f"bootstrap_servers={server.bootstrap!r}, service="))
    environment.run("python shop.py")
    seen = environment.run(adapted(block_with(README, "sh", "--since 1h")), MOLDAU_BOOTSTRAP=server.bootstrap, MOLDAU_REGISTRY=registry)
    assert seen.count('"country":"CZ"') == 1000
    assert "orders-value" in seen

    due_or_not = (0, 3)  # the ten minutes of a window may be over just now
    proof = environment.run(adapted(block_with(README, "sh", "moldau audit run")), due_or_not, MOLDAU_BOOTSTRAP=server.bootstrap)
    assert "orders: 1,000 rows" in proof
    assert "loss" not in proof
