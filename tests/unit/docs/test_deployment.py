"""The example unit, settings and container file are such that a broker starts from them; systemd's own check is asked where it is there."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner

from moldau.cli.application import application
from moldau.model.config.static import read_static
from moldau.model.config.store import BrokerConfig
from support.console import MOLDAU
from support.pages import ROOT

EXAMPLES = ROOT / "examples" / "deployment"
UNIT = EXAMPLES / "moldau.service"


def settings() -> BrokerConfig:
    return BrokerConfig(read_static(file_text=(EXAMPLES / "broker.toml").read_text(), file_name="broker.toml", environment={}, settings=[]))


def serve(words: list[str]) -> dict[str, object]:
    """The parameters of `moldau serve` with these words; a usage error for words that it does not know."""
    command = application.get_command(application.make_context("moldau", [], resilient_parsing=True), "serve")
    assert command is not None
    words = [word if word != "/etc/moldau/broker.toml" else str(EXAMPLES / "broker.toml") for word in words]
    return command.make_context("serve", words).params


def test_the_settings_are_ours_and_keep_to_loopback() -> None:
    config = settings()
    assert config.list("log.dirs") == ("/var/lib/moldau",)
    assert config.list("listeners") == ("PLAINTEXT://localhost:9092",)


def test_the_unit_starts_what_exists_and_waits_longer_than_a_stop_takes() -> None:
    unit = UNIT.read_text()
    (line,) = re.findall(r"^ExecStart=/opt/moldau/bin/moldau serve (.*)$", unit, re.MULTILINE)
    assert serve(line.split())["file"] == str(EXAMPLES / "broker.toml")
    (limit_s,) = re.findall(r"^TimeoutStopSec=(\d+)$", unit, re.MULTILINE)
    assert int(limit_s) * 1000 > settings().int("shutdown.timeout.ms") + settings().int("shutdown.forced.after.ms")


def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    if (program := shutil.which("systemd-analyze")) is None:
        pytest.skip("no systemd-analyze here")
    unit = tmp_path / "moldau.service"
    unit.write_text(UNIT.read_text().replace("/opt/moldau/bin/moldau", MOLDAU).replace("=moldau\n", "=root\n"))
    done = subprocess.run([program, "verify", "--man=no", unit], capture_output=True, text=True, timeout=60, check=False)
    assert [line for line in done.stderr.splitlines() if "moldau.service" in line] == []


def test_the_container_starts_what_exists() -> None:
    text = (EXAMPLES / "Containerfile").read_text()
    ((entry, _), (arguments, _)) = re.findall(r"^(?:ENTRYPOINT|CMD) (\[(.*)\])$", text, re.MULTILINE)
    assert json.loads(entry)[:2] == ["moldau", "serve"]
    params = serve([*json.loads(entry)[2:], *json.loads(arguments)])
    assert (params["listen"], params["registry"]) == ("0.0.0.0:9092", "0.0.0.0:8081")
    (health,) = re.findall(r"^HEALTHCHECK .* CMD (\[.*\])$", text, re.MULTILINE)
    name, *words = json.loads(health)
    done = CliRunner().invoke(application, [*words, "--bootstrap", "127.0.0.1:1", "--timeout", "0.1"])
    assert (name, done.exit_code) == ("moldau", 1), done.output
    copied = re.findall(r"^COPY (\S+) ", text, re.MULTILINE)
    assert all(path.startswith("dist/") or (ROOT / path).exists() for path in copied)
