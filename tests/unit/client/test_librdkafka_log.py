"""A broker that is away makes one line for each outage; everything else that librdkafka says comes through."""

import logging

import pytest

from moldau.client.librdkafka import QUIET_S, BrokerLog

REFUSED = "[thrd:{0}/bootstrap]: {0}/bootstrap: Connect to ipv4#{0} failed: Connection refused (after 0ms in state CONNECT)"
COORDINATOR = "[thrd:GroupCoordinator]: GroupCoordinator: {0}: Connect to ipv4#{0} failed: Connection refused (after 1ms in state CONNECT)"
A, B = "127.0.0.1:9092", "broker-2.example:9093"


class Scene:
    def __init__(self) -> None:
        self.now = 0.0
        self.log = BrokerLog("consumer of group g", lambda: self.now)

    def say(self, text: str, level: int = logging.ERROR, facility: str = "FAIL") -> None:
        self.log.log(level, "%s [%s] %s", facility, "rdkafka#consumer-1", text)


@pytest.fixture
def scene(caplog: pytest.LogCaptureFixture) -> Scene:
    caplog.set_level(logging.INFO, "moldau.client")
    return Scene()


def said(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.message for record in caplog.records]
    caplog.clear()
    return found


def test_one_line_for_an_outage_of_a_broker(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(100):
        scene.now += 0.05
        scene.say(REFUSED.format(A))
        scene.say(COORDINATOR.format(A))
        scene.say("1/1 brokers are down", facility="ERROR")
    assert said(caplog) == [f"consumer of group g: broker {A} is away: Connection refused; the connection is retried"]
    scene.say(REFUSED.format(B))
    scene.say(f"[thrd:{B}/2]: {B}/2: 3 request(s) timed out: disconnect (after 61000ms in state UP)", logging.WARNING)
    assert said(caplog) == [f"consumer of group g: broker {B} is away: Connection refused; the connection is retried"]


def test_the_next_outage_is_reported_again(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.say(REFUSED.format(A))
    scene.log.answered()
    assert len(said(caplog)) == 1, "what was fetched before proves nothing"
    scene.now = 12.0
    scene.log.answered()
    scene.log.answered()
    assert said(caplog) == ["consumer of group g: answered again after 12.0 s"]
    scene.say(REFUSED.format(A))
    scene.now += QUIET_S
    scene.say(REFUSED.format(A))
    assert len(said(caplog)) == 2, "a minute without a word is an end too"


def test_what_else_there_is_comes_through_once_a_minute(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    refused = "[thrd:sasl]: {0}/bootstrap: SASL authentication error: bad password (after {1}ms in state AUTH_REQ)"
    scene.say(refused.format(A, 3))
    scene.now = 1.0
    scene.say(refused.format(A, 4))
    scene.say("[thrd:main]: no such luck", logging.WARNING, "CONFWARN")
    scene.say("[thrd:main]: news", logging.INFO, "NEWS")
    found = said(caplog)
    assert [text.split("[thrd")[0] for text in found] == [f"{facility} [rdkafka#consumer-1] " for facility in ("FAIL", "CONFWARN", "NEWS")]
    assert "bad password" in found[0]
    scene.now = QUIET_S
    scene.say(refused.format(A, 3))
    assert len(said(caplog)) == 1


def test_names_that_cannot_be_resolved_and_connections_that_hang(scene: Scene, caplog: pytest.LogCaptureFixture) -> None:
    scene.say(f"[thrd:{B}/bootstrap]: {B}/bootstrap: Failed to resolve '{B}': Name or service not known (after 3ms in state CONNECT)")
    scene.say(f"[thrd:{A}/1]: {A}/1: Connection setup timed out in state CONNECT (after 30028ms in state CONNECT)")
    assert said(caplog) == [
        f"consumer of group g: broker {B} is away: Failed to resolve '{B}': Name or service not known; the connection is retried",
        f"consumer of group g: broker {A} is away: Connection setup timed out in state CONNECT; the connection is retried",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "[thrd:main]: TxnCoordinator/0: Failed to add partition: Broker: Producer attempted an operation with an old epoch",
        "[thrd:main]: Fatal transaction error: Failed to add: Local: This instance has been fenced by a newer instance (_FENCED)",
        "Fatal error: Broker: There is a newer producer with the same transactionalId which fences the current one",
    ],
)
def test_lines_of_a_producer_that_is_fenced_are_left_to_its_exception(scene: Scene, caplog: pytest.LogCaptureFixture, text: str) -> None:
    scene.say(text, logging.CRITICAL, "FATAL")
    assert said(caplog) == []
