"""A probe that cannot begin ends with one line that says why."""

import logging
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from moldau.assembly.local_cluster.plan import free_ports
from moldau.cli.application import application
from moldau.probe import prober


@pytest.fixture(autouse=True)
def level_of_the_client() -> Iterator[None]:
    """The command alters it for its process."""
    logger = logging.getLogger("moldau.client")
    before = logger.level
    yield
    logger.setLevel(before)


def test_the_target_of_a_mirror_is_another_cluster() -> None:
    done = CliRunner().invoke(application, ["probe", "-b", "127.0.0.1:1", "--once", "--mirror", "127.0.0.1:1"])
    assert done.exit_code == 2
    assert "127.0.0.1:1 is the cluster that is probed; a mirror brings the topic to another one" in done.output


def test_a_cluster_that_does_not_answer_at_the_start_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prober, "START_LIMIT_S", 0.3)
    address = f"127.0.0.1:{free_ports()[0]}"
    done = CliRunner().invoke(application, ["probe", "-b", address, "--once", "--interval", "1"])
    assert done.exit_code == 1
    assert f"topic _probe: could not be made at {address} within 0.3 s" in done.output
