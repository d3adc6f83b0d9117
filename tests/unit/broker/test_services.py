"""A broker has what each module of handlers asks for. mypy checks it; the modules are loaded by name, so nothing else would."""

from typing import TYPE_CHECKING, Protocol

from moldau.broker.api.catalog import MODULES, OWN_WAY, served_api
from moldau.protocol.messages import load
from support.broker_world import BrokerWorld

if TYPE_CHECKING:
    from moldau.broker.handlers import (
        cluster,
        configs,
        coordinators,
        group_admin,
        group_members,
        init_producer_id,
        metadata,
        offset_lookups,
        offsets,
        topics,
        transaction_admin,
        transactions,
    )
    from moldau.broker.handlers.fetch import call as fetch
    from moldau.broker.handlers.produce import operation

    class AllServices(
        cluster.Services,
        configs.Services,
        coordinators.Services,
        fetch.Services,
        group_admin.Services,
        group_members.Services,
        init_producer_id.Services,
        metadata.Services,
        offset_lookups.Services,
        offsets.Services,
        operation.Services,
        topics.Services,
        transaction_admin.Services,
        transactions.Services,
        Protocol,
    ):
        """What all of them ask for."""


def test_a_broker_has_what_each_module_of_handlers_asks_for() -> None:
    services: AllServices = BrokerWorld().broker
    assert services.broker_id == 0


def test_each_api_in_service_has_the_handler_of_its_own_message() -> None:
    for api_key, module in MODULES.items():
        if module != OWN_WAY:
            served = served_api(api_key)
            assert served.message is load(api_key).request
            assert f"moldau.broker.{module}" == served.handler.__module__
            assert served.message in served.handler.__annotations__.values()
