"""``moldau produce`` says when brokers acknowledge nothing: after a few seconds, then rarely, with the reason if one was heard, and when
it goes on.
"""

import logging

import pytest

from moldau.cli import sending
from moldau.cli.input_records import InputRecord
from moldau.cli.sending import REPORT_AFTER_S, REPORT_AGAIN_S, UNKNOWN_REASON, AcknowledgementWait, Sender
from moldau.client.admin import Admin, AdminResource, AdminResourceType, ConfigUpdate
from moldau.client.cluster import Cluster
from moldau.testing.broker import Broker
from support.lacking import lack_replicas

LINE = "[thrd:{0}/bootstrap]: {0}/bootstrap: Connect to ipv4#{0} failed: Connection refused (after 0ms in state CONNECT)"
BROKER = "127.0.0.1:9092"
SHORT_S = 0.05
LACKS = "NOT_ENOUGH_REPLICAS: t-0 has 1 of 2 replicas in sync, min.insync.replicas is 2; see moldau topic describe t"


class Scene:
    """Looks twice a second."""

    def __init__(self) -> None:
        self.now = 100.0
        self.waiting = AcknowledgementWait("topic t", 60.0, lambda: self.now)

    def look(self, seconds: float, acknowledged: int, left: int) -> list[str]:
        said = []
        for _ in range(int(2 * seconds)):
            self.now += 0.5
            said.append(self.waiting.look(acknowledged, left))
        return [text for text in said if text is not None]

    def hear(self, text: str) -> None:
        self.waiting.logger.log(logging.ERROR, "%s [%s] %s", "FAIL", "rdkafka#producer-1", text)


def test_it_is_told_after_seconds_then_rarely_and_once_when_it_goes_on() -> None:
    scene = Scene()
    assert scene.look(REPORT_AFTER_S, 7, 1) == []
    limit = "each is tried again for up to 60 s (--timeout)"
    assert scene.look(1, 7, 1) == [f"topic t: nothing acknowledged for 4 s, 1 record waits; {limit}; {UNKNOWN_REASON}"]
    assert scene.look(REPORT_AGAIN_S - 1, 7, 1) == []
    assert scene.look(1, 7, 1200) == [f"topic t: nothing acknowledged for 34 s, 1,200 records wait; {limit}; {UNKNOWN_REASON}"]
    assert scene.look(1, 8, 1199) == ["topic t: acknowledged again after 35 s, sending continues"]
    assert scene.look(REPORT_AFTER_S - 1, 8, 1199) == []
    assert len(scene.look(1, 8, 1199)) == 1, "the next time"


def test_nothing_is_told_while_there_is_progress_or_nothing_to_wait_for() -> None:
    scene = Scene()
    assert scene.look(REPORT_AFTER_S - 1, -1, 2) == [], "a line of the log was counted as a message"
    for acknowledged in range(1, 100):
        assert scene.look(REPORT_AFTER_S - 1, acknowledged, 3) == []
    assert scene.look(100, 99, 0) == []


def test_what_librdkafka_says_of_a_broker_is_the_reason_until_there_is_progress(caplog: pytest.LogCaptureFixture) -> None:
    scene = Scene()
    assert scene.look(1, 0, 1) == []
    for _ in range(3):
        scene.hear(LINE.format(BROKER))
    (told,) = scene.look(REPORT_AFTER_S, 0, 1)
    assert told.endswith(f"(--timeout); broker {BROKER} is away: Connection refused")
    assert caplog.records == [], "it is told once"
    assert len(scene.look(1, 1, 1)) == 1
    (told,) = scene.look(REPORT_AFTER_S, 1, 1)
    assert told.endswith(UNKNOWN_REASON)
    scene.hear(LINE.format(BROKER))
    (told,) = scene.look(REPORT_AGAIN_S, 1, 1)
    assert told.endswith("Connection refused")


def test_acknowledgements_that_were_on_their_way_do_not_hide_why_no_more_come() -> None:
    """They are counted behind the line that says that the broker is away; and that line comes once a minute at most."""
    scene = Scene()
    scene.hear(LINE.format(BROKER))
    assert scene.look(0.5, 5, 10) == []
    scene.hear(LINE.format(BROKER))
    (told,) = scene.look(REPORT_AFTER_S + 1, 5, 10)
    assert told.endswith(f"broker {BROKER} is away: Connection refused")


@pytest.mark.parametrize(("fault", "reason"), [("away", " is away: "), ("too few replicas", LACKS)])
def test_a_record_that_waits_for_its_brokers(fault: str, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The trouble ends when it has been told with its reason; then the record is delivered, and that is told."""
    told: list[str] = []

    def tell(text: str) -> None:
        told.append(text)
        if reason not in text or (fault == "away" and broker.running):
            return
        if fault == "away":
            broker.start()
        else:
            configure(broker, "1")

    with Broker() as broker:
        broker.create_topic("t")
        if fault != "away":
            broker.stop()
            lack_replicas(broker.directory, "t")
            broker.start()
        sender = Sender(broker.bootstrap_servers, "t", {"acks": "all"}, headers={}, partition=0, timeout_s=60.0)
        sender.send(InputRecord(1, None, b"one"))
        sender.finish()
        monkeypatch.setattr(sending, "REPORT_AFTER_S", SHORT_S)
        monkeypatch.setattr(sending, "REPORT_AGAIN_S", SHORT_S)
        sender.report = tell
        if fault == "away":
            broker.stop()
        else:
            configure(broker, "2")
        sender.send(InputRecord(2, None, b"two"))
        sender.finish()
        assert (sender.delivered, sender.failed) == (2, 0)
    assert all(text.startswith("partition t-0: nothing acknowledged for ") and "1 record waits; " in text for text in told[:-1])
    assert any(reason in text for text in told[:-1])
    assert told[-1].startswith("partition t-0: acknowledged again after ")


def test_a_record_whose_time_is_over_while_too_few_replicas_are_in_sync_says_so() -> None:
    with Broker() as broker:
        broker.create_topic("t", config={"min.insync.replicas": 2})
        broker.stop()
        lack_replicas(broker.directory, "t")
        broker.start()
        for acks, cause in (("all", f"; {LACKS}"), ("1", None)):
            sender = Sender(broker.bootstrap_servers, "t", {"acks": acks}, headers={}, partition=None, timeout_s=1.0)
            sender.send(InputRecord(1, None, b"one"))
            sender.finish()
            assert list(sender.failures()) == (
                [] if cause is None else [f"t-0: 1 not delivered: MSG_TIMED_OUT: Local: Message timed out{cause}"]
            )


def configure(broker: Broker, replicas_min: str) -> None:
    with Cluster(broker.bootstrap_servers) as cluster:
        Admin(cluster).alter_configs(AdminResource(AdminResourceType.TOPIC, "t"), ConfigUpdate(set={"min.insync.replicas": replicas_min}))
