"""Our codec, kafka-python's and kio's write the same bytes and read the same values, for every (API, version) that they know.

`NOT_COMPARED` lists where another codec does something else, and why that is its own affair.
"""

from typing import Any

import pytest
from hypothesis import given

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import decode, encode
from support.messages import Case, cases, few, values
from support.oracles import ORACLES, Oracle

NOT_COMPARED = {
    ("kafka-python", "ApiVersionsResponse"): (
        lambda message, version: version > 0 and message.error_code != 0,
        "it reads every ApiVersions response that has an error as version 0, whatever version was asked for",
    ),
    ("kio", "DescribeTransactionsResponse"): (
        lambda message, _: any(state.transaction_start_time_ms < 0 for state in message.transaction_states),
        "it reads no time before 1970 here, where a broker says -1 of a transaction that has not begun",
    ),
}


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
@pytest.mark.parametrize("api_key", ApiKey, ids=lambda key: key.name)
def test_other_codecs_agree(api_key: ApiKey, oracle: Oracle) -> None:
    known = [case for case in cases(api_key) if oracle.knows(*case)]
    for case in known:
        check(oracle, case)
    if not known:
        assert api_key in UNKNOWN[oracle.name]


def check(oracle: Oracle, case: Case) -> None:
    skipped, _ = NOT_COMPARED.get((oracle.name, case.cls.__name__), (lambda *_: False, ""))

    @few
    @given(values(*case))
    def agree(message: Any) -> None:
        data = encode(message, case.version)
        assert oracle.encode(message, case.version) == data
        if not skipped(message, case.version):
            assert oracle.decode(*case, data) == message
        assert decode(*case, data) == message

    agree()


ZOOKEEPER_ERA = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN}
UNKNOWN = {
    "kafka-python": ZOOKEEPER_ERA | {ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE},
    "kio": ZOOKEEPER_ERA,
}


@pytest.mark.parametrize("oracle", ORACLES, ids=lambda oracle: oracle.name)
def test_the_other_codecs_know_nearly_everything(oracle: Oracle) -> None:
    missing = {str(case) for api_key in ApiKey if api_key not in UNKNOWN[oracle.name] for case in cases(api_key) if not oracle.knows(*case)}
    assert missing == set()
