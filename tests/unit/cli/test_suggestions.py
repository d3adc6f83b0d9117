"""Who mistypes a command, an option, a setting, a topic or a group is told the nearest name that there is."""

import pytest
from click.testing import CliRunner

from moldau.cli.application import application
from moldau.client.errors import failure
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.identity import TopicPartition
from moldau.model.near_names import did_you_mean
from moldau.model.topic_names import check_name
from moldau.protocol.messages.metadata import MetadataResponse, MetadataResponseBroker, MetadataResponseTopic
from support.scripted_broker import Request, ScriptedBroker


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (["tpoic", "list"], ". Did you mean 'topic'?"),
        (["consum"], ". Did you mean 'consume'?"),
        (["audit", "reprot"], ". Did you mean 'report'?"),
        (["topic", "lst"], ". Did you mean 'list'?"),
        (["topic", "list", "--bootstap", "x"], ". Did you mean '--bootstrap'?"),
        (["serve", "--set", "num.partition=3"], ", did you mean 'num.partitions'?"),
        (["completion", "bsh"], "'bsh' is not one of 'bash', 'zsh', 'fish', did you mean 'bash'?"),
    ],
)
def test_a_slip_of_a_command_an_option_or_a_setting(arguments: list[str], hint: str) -> None:
    """Claim: click's words for commands, whether or not they are imported already, and for options; ours for settings."""
    result = CliRunner().invoke(application, arguments)
    assert result.exit_code == 2
    assert hint in result.output


@pytest.mark.parametrize(
    "arguments",
    [["-b", "h:1", "topic", "list"], ["--bootstrap=h:1", "topic", "list"], ["--json", "topic", "list"], ["topic", "-b", "h:1", "list"]],
)
def test_an_option_before_its_command_is_told_where_it_goes(arguments: list[str]) -> None:
    result = CliRunner().invoke(application, arguments)
    assert result.exit_code == 2
    assert ". Options follow the command that they are for: moldau topic list --bootstrap HOST:PORT\n" in result.output
    assert "Did you mean" not in result.output


def test_an_option_that_a_command_lacks_is_not_said_to_be_misplaced() -> None:
    result = CliRunner().invoke(application, ["completion", "--timeout", "3", "bash"])
    assert result.exit_code == 2
    assert "Options follow" not in result.output


def test_nothing_is_suggested_where_nothing_is_near() -> None:
    result = CliRunner().invoke(application, ["xylophone"])
    assert "No such command 'xylophone'.\n" in result.output
    assert "'cmd' is not one of 'bash', 'zsh', 'fish'.\n" in CliRunner().invoke(application, ["completion", "cmd"]).output
    assert did_you_mean("FLIGHTS", ["flights"]) == ", did you mean 'flights'?"


def test_of_names_that_differ_in_capital_letters_alone_the_nearest_is_suggested() -> None:
    for known in (["Events", "events"], ["events", "Events"]):
        assert did_you_mean("event", known) == ", did you mean 'events'?"
        assert did_you_mean("Event", known) == ", did you mean 'Events'?"


@pytest.mark.parametrize("arguments", [("topic", "describe", "fligths"), ("consume", "fligths", "--until-end")])
def test_a_topic_that_does_not_exist_is_told_with_the_brokers_nearest(arguments: tuple[str, ...]) -> None:
    def script(request: Request) -> object:
        wanted = request.message.topics
        names = ["flights", "_audit"] if wanted is None else [each.name for each in wanted]
        topics = [MetadataResponseTopic(0 if name in ("flights", "_audit") else 3, name) for name in names]
        return MetadataResponse(brokers=[MetadataResponseBroker(0, "127.0.0.1", broker.port)], controller_id=0, topics=topics)

    with ScriptedBroker(script) as broker:
        result = CliRunner().invoke(application, [*arguments, "--bootstrap", broker.bootstrap, "--timeout", "5"])
    assert result.exit_code == 1
    assert "UNKNOWN_TOPIC_OR_PARTITION: topic fligths: unknown topic or partition, did you mean 'flights'?" in result.output


def test_names_that_no_topic_may_have_are_refused_with_the_rule() -> None:
    """Claim: characters and length are in the message, the broker's own and that of an answer which has only the code."""
    rule = "a name has 1 to 249 letters (a-z, A-Z), digits, '.', '_' and '-'"
    for name in ("", "a b", "ü", "x" * 250, ".."):
        with pytest.raises(PeerError) as raised:
            check_name(name)
        assert rule in raised.value.message
    code = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert rule in failure(code, "topic a b").message
    assert rule not in failure(code, TopicPartition("__consumer_offsets", 0)).message, "refused for what it is, not for its name"
