"""Every command ends in one line and an exit code: 0 done, 1 failed, 2 wrong arguments. No traceback for what is not our bug."""

import errno
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from moldau import __version__
from moldau.cli.application import COMMANDS, application
from moldau.model.errors import ErrorCode, PeerError, ProtocolError, StorageError
from moldau.protocol.codec.primitives import UnencodableError
from moldau.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker
from moldau.protocol.messages.topics import CreatableTopicResult, CreateTopicsResponse
from support.scripted_broker import Request, ScriptedBroker


def run(*arguments: str) -> Result:
    return CliRunner().invoke(application, arguments)


def test_version_and_help_import_no_command() -> None:
    probe = (
        "import sys; from moldau.cli.application import application\n"
        "application(['--help'], standalone_mode=False)\n"
        "heavy = {'asyncio', 'confluent_kafka', 'rich', 'moldau.cli.topic', 'moldau.client.cluster', 'socket'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert all(name in done.stdout for name in COMMANDS)
    assert run("--version").output == f"moldau {__version__}\n"


@pytest.mark.parametrize("group", ["topic", "group"])
def test_a_list_imports_only_what_it_needs(group: str) -> None:
    probe = (
        "import sys; from moldau.cli.application import application\n"
        f"application(['{group}', 'list', '--bootstrap', '127.0.0.1:1', '--timeout', '0.1'], standalone_mode=False)\n"
    )
    probe = f"try:\n  {probe.replace(chr(10), chr(10) + '  ')}\nexcept Exception: pass\n"
    probe += "import sys\nheavy = {'asyncio', 'confluent_kafka', 'rich', 'moldau.cli.produce', 'cramjam', 'logging'} & set(sys.modules)\n"
    probe += "assert 'moldau.client.cluster' in sys.modules\nassert not heavy, heavy\n"
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (PeerError(ErrorCode.INVALID_CONFIG, "topic t: no"), "Error: INVALID_CONFIG: topic t: no\n"),
        (ProtocolError("10.0.0.1:9092: not a frame"), "Error: 10.0.0.1:9092: not a frame\n"),
        (StorageError("permission denied", path="/data"), "Error: /data: permission denied\n"),
    ],
)
def test_an_error_that_is_not_our_bug_is_one_line(error: Exception, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def failing() -> None:
        raise error

    monkeypatch.setattr(application, "get_command", lambda ctx, name: failing)
    result = run("topic")
    assert (result.exit_code, result.output) == (1, line)


def test_what_no_request_can_carry_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def failing() -> None:
        raise UnencodableError("name: 40000 bytes")

    monkeypatch.setattr(application, "get_command", lambda ctx, name: failing)
    result = run("topic")
    assert (result.exit_code, result.output) == (1, "Error: this cannot be sent to a broker: name: 40000 bytes\n")


def test_an_interrupt_while_modules_are_loaded_is_no_traceback() -> None:
    probe = (
        "import sys\n"
        "class Interrupt:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click':\n"
        "            raise KeyboardInterrupt\n"
        "from moldau.cli.main import main\n"
        "sys.meta_path.insert(0, Interrupt())\n"
        "main()\n"
    )
    done = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize("arguments", [["topic", "list"], ["topic", "list", "--json"], ["topic", "--help"], ["--help"]])
def test_output_that_cannot_be_written_is_one_line(arguments: list[str]) -> None:
    with ScriptedBroker(lambda request: MetadataResponse()) as broker, Path("/dev/full").open("wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "moldau.cli.main", *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            env={**os.environ, "MOLDAU_BOOTSTRAP": broker.bootstrap},
            check=False,
        )
    assert (done.returncode, done.stderr) == (1, b"Error: cannot write the output: no space left on device\n")


@pytest.mark.parametrize("arguments", [["topic", "list"], ["topic", "list", "--json"], ["consume", "--help"], ["--version"]])
def test_a_closed_standard_output_is_like_dev_null(arguments: list[str]) -> None:
    """``moldau topic list >&-``"""
    with ScriptedBroker(lambda request: MetadataResponse()) as broker:
        done = subprocess.run(
            ["sh", "-c", '"$@" >&-', "sh", sys.executable, "-m", "moldau.cli.main", *arguments],
            stderr=subprocess.PIPE,
            env={**os.environ, "MOLDAU_BOOTSTRAP": broker.bootstrap},
            text=True,
            check=False,
        )
    assert (done.returncode, done.stderr) == (0, "")


def test_no_file_or_socket_gets_the_number_of_a_closed_stream() -> None:
    """What a library writes to standard error would go into it."""
    probe = (
        "import os, sys\nfrom moldau.cli import main\nsys.argv = ['moldau', '--version']\n"
        "try:\n    main.main()\nexcept SystemExit:\n    pass\n"
        "with open(sys.executable) as file:\n    taken = file.fileno()\n"
        "null = os.stat(os.devnull)\n"
        "assert taken > 2, taken\nassert all(os.path.samestat(os.fstat(n), null) for n in range(3))\n"
        "sys.exit(17)\n"
    )
    done = subprocess.run(["sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", probe], check=False)
    assert done.returncode == 17


def test_child_processes_inherit_dev_null_for_a_closed_stream() -> None:
    """Else the first file that a child opens, a worker or Java for instance, gets the number, and its messages go into that file."""
    child = (
        "import os, sys\nnull = os.stat(os.devnull)\n"
        "with open(sys.executable) as file:\n    taken = file.fileno()\n"
        "sys.exit(17 if taken > 2 and all(os.path.samestat(os.fstat(n), null) for n in range(3)) else 1)\n"
    )
    probe = (
        "import subprocess, sys\nfrom moldau.cli import main\nsys.argv = ['moldau', '--version']\n"
        "try:\n    main.main()\nexcept SystemExit:\n    pass\n"
        f"sys.exit(subprocess.run([sys.executable, '-c', {child!r}], check=False).returncode)\n"
    )
    for closed in ("2>&-", "<&- >&- 2>&-"):
        others = "" if closed.startswith("<") else "</dev/null >/dev/null "
        done = subprocess.run(["sh", "-c", f'"$@" {others}{closed}', "sh", sys.executable, "-c", probe], check=False)
        assert done.returncode == 17, closed


@pytest.mark.parametrize("group", ["topic", "group", "config", "log"])
def test_the_list_of_commands_is_whole_in_80_columns(group: str) -> None:
    listed = CliRunner().invoke(application, [group, "--help"], terminal_width=80).output
    _, heading, commands = listed.partition("Commands:")
    assert heading
    assert "..." not in commands
    assert "…" not in commands


def test_our_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def failing() -> None:
        raise AssertionError("ours")

    monkeypatch.setattr(application, "get_command", lambda ctx, name: failing)
    assert isinstance(run("topic").exception, AssertionError)


def test_an_interrupt_has_its_own_code(monkeypatch: pytest.MonkeyPatch) -> None:
    @click.command()
    def interrupted() -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(application, "get_command", lambda ctx, name: interrupted)
    assert run("topic").exit_code == 130


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nonsense"], "No such command"),
        (["topic", "create"], "Missing argument"),
        (["topic", "list", "--bootstrap", "nowhere"], "'nowhere' has no port"),
        (["topic", "list", "-b", "http://localhost:9092"], "'http://localhost:9092' is not HOST:PORT: leave out http://"),
        (["topic", "create", "t", "--partitions", "0"], "0 is not in the range 1<=x<=2147483647"),
        (["topic", "create", "t", "--partitions", "99999999999"], "99999999999 is not in the range 1<=x<=2147483647"),
        (["topic", "create", "t", "-r", "99999"], "99999 is not in the range 1<=x<=32767"),
        (["topic", "alter", "t", "--partitions", "9999999999"], "9999999999 is not in the range 1<=x<=2147483647"),
        (["topic", "create", "x" * 40_000], "has 40,000 bytes, at most 32,767 can be sent"),
        (["topic", "describe", "x" * 40_000], "has 40,000 bytes, at most 32,767 can be sent"),
        (["topic", "create", "a\udcff"], "'a\\udcff' is not UTF-8"),
        (["topic", "describe", "a\udcff"], "'a\\udcff' is not UTF-8"),
        (["topic", "create", "t", "-c", "a=\udcff"], "is not UTF-8"),
        (["consume", "t", "--format", "%s\udcff"], "is not UTF-8"),
        (["produce", "t", "--key-separator", "\udcff"], "is not UTF-8"),
        (["topic", "list", "--timeout", "nan"], "'nan' is not a number of seconds"),
        (["topic", "list", "--timeout", "inf"], "'inf' is not a number of seconds"),
        (["topic", "list", "--timeout", "2d"], "172800.0 is not in the range 0.1<=x<=86400.0"),
        (["produce", "t", "--timeout", "nan"], "'nan' is not a number of seconds"),
        (["topic", "create", "t", "--config", "retention.ms"], "'retention.ms' is not NAME=VALUE"),
        (["topic", "create", "t", "-c", "a=1", "-c", "a=2"], "a is given twice"),
        (["topic", "alter", "t"], "nothing to change"),
        (["topic", "trim", "t", "--before", "soon"], "'soon' is none of"),
        (["config", "describe"], "give either --topic or --broker"),
        (["config", "describe", "--topic", "t", "--broker", "0"], "give either --topic or --broker"),
        (["config", "alter", "--topic", "t"], "nothing to change"),
        (["config", "describe", "--broker", "x"], "neither a broker's number nor 'default'"),
        (["config", "describe", "--broker", "9" * 5000], "neither a broker's number nor 'default'"),
        (["consume", "t", "--from", "start"], "'start' is none of"),
        (["consume", "t", "--format", "xml"], "neither value nor json"),
        (["consume", "t", "--since", "10m", "--until", "20m"], "--until is before --since: there is nothing between them"),
        (["consume", "t", "--from", "2013-01-02", "--until", "2013-01-01"], "--until is before --from: there is nothing between them"),
        (["produce", "t", "/no/such/file"], "does not exist"),
        (["produce", "t", "--key-field", "k"], "--key-field needs --format json or csv"),
        (["produce", "t", "--format", "json", "--key-separator", ":"], "--key-separator is for --format lines"),
        (["produce", "t", "--key-separator", ""], "must not be empty"),
        (["produce", "t", "--columns", "a"], "are for --format csv"),
        (["produce", "t", "--format", "csv", "--delimiter", "ab"], "'ab' is not one character"),
        (["produce", "t", "--format", "csv", "--columns", "a,b", "--key-field", "c"], "no column 'c' among a,b"),
        (["produce", "t", "--acks", "1", "--idempotent"], "--idempotent needs --acks all"),
        (["log", "dump", "/no/such/file"], "does not exist"),
        (["log", "verify", "/no/such/directory"], "does not exist"),
    ],
)
def test_wrong_arguments_are_told_before_anything_happens(arguments: Sequence[str], said: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert said in result.output


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        (["produce", "t"], "File"),
        (["log", "dump"], "File"),
        (["log", "verify"], "Directory"),
        (["load"], "File"),
        (["schema", "register", "s"], "File"),
        (["group", "reset", "g", "--from-file"], "File"),
    ],
)
def test_a_path_below_a_directory_without_permission_is_not_said_to_be_missing(
    arguments: Sequence[str], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`os.stat` is what the system refuses there; root, who may run this, is refused nothing."""
    stat = os.stat

    def refuse(path: Any, *more: Any, **options: Any) -> os.stat_result:
        if path == "/closed/there":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return stat(path, *more, **options)

    monkeypatch.setattr(os, "stat", refuse)
    result = run(*arguments, "/closed/there")
    assert result.exit_code == 2
    assert f"{kind} '/closed/there': permission denied" in result.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "list"],
        ["topic", "create", "t"],
        ["topic", "describe", "t"],
        ["topic", "delete", "t"],
        ["config", "describe", "--topic", "t"],
        ["consume", "t"],
        ["consume", "t", "--since", "2013-01-01", "--until", "2013-01-01"],
        ["consume", "t", "--since", "2113-01-01", "--until-end"],
        ["consume", "t", "--since", "10m", "--until", "20m", "--group", "g"],
        ["produce", "t"],
    ],
)
def test_no_broker_is_told_when_the_time_is_over(arguments: Sequence[str]) -> None:
    with ScriptedBroker() as gone:
        pass
    result = run(*arguments, "--bootstrap", gone.bootstrap, "--timeout", "0.1")
    told = f"Error: cannot connect to {gone.bootstrap}: connection refused (tried for 0.1 s)\n"
    assert (result.exit_code, result.output) == (1, told)


@pytest.mark.parametrize(
    "arguments",
    [
        ["consume", "t", "--group", ""],
        ["group", "describe", "g", ""],
        ["group", "reset", "", "--to", "end"],
        ["group", "delete", ""],
        ["produce", "t", "--transactional-id", ""],
    ],
)
def test_an_empty_name_is_a_variable_that_was_not_set(arguments: Sequence[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert result.output.endswith(": must not be empty\n")


def test_the_broker_to_ask_may_come_from_the_environment() -> None:
    with ScriptedBroker(lambda request: MetadataResponse()) as broker:
        result = CliRunner(env={"MOLDAU_BOOTSTRAP": broker.bootstrap}).invoke(application, ["topic", "list", "--json"])
    assert (result.exit_code, result.output) == (0, "[]\n")


def test_a_refusal_is_the_code_and_the_brokers_words() -> None:
    def script(request: Request) -> object:
        if request.api_key == 3:
            return MetadataResponse(brokers=[MetadataResponseBroker(0, "127.0.0.1", broker.port)], controller_id=0)
        return CreateTopicsResponse(topics=[CreatableTopicResult("a b", error_code=17, error_message="a space is not allowed")])

    with ScriptedBroker(script) as broker:
        result = run("topic", "create", "a b", "--bootstrap", broker.bootstrap)
    assert (result.exit_code, result.output) == (1, "Error: INVALID_TOPIC_EXCEPTION: topic a b: a space is not allowed\n")


def test_without_confluent_kafka_produce_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before it looks for a broker: at port 9 there is none."""
    monkeypatch.setitem(sys.modules, "confluent_kafka", None)
    result = run("produce", "t", "--bootstrap", "127.0.0.1:9")
    assert (result.exit_code, result.output) == (
        1,
        "Error: moldau produce needs confluent_kafka, which is not installed: pip install 'moldau[client]'\n",
    )
