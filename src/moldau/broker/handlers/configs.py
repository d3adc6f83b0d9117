"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, ListConfigResources."""

from collections import Counter
from collections.abc import Callable, Generator, Iterable
from typing import TYPE_CHECKING, Protocol, TypeVar

from moldau.broker.configs import ConfigDescription, IncrementalChange, Resource, ResourceType
from moldau.broker.handlers.services import AdminServices
from moldau.broker.request import Reply, Request
from moldau.model.errors import ErrorCode, PeerError
from moldau.model.steps import Pause, Steps
from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec import element_writer
from moldau.protocol.codec.encoded import EncodedArray
from moldau.protocol.messages.configs import (
    AlterConfigsRequest,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
    ConfigResource,
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
    DescribeConfigsSynonym,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)
from moldau.protocol.messages.configs import AlterConfigsResourceResponse as IncrementalResourceResponse

if TYPE_CHECKING:
    from moldau.broker.configs import Configs


class Services(AdminServices, Protocol):
    """What these handlers use of the broker."""

    @property
    def configs(self) -> "Configs":
        """Configurations that change at run time."""


FIRST_WITH_TYPES = 1
"""ListConfigResources lists other types than client metrics from this version on."""
KEPT_MAX = 1000
"""Descriptions that one request keeps, for further topics with the same configurations."""
NOT_IN_EFFECT = " (Without effect in this version.)"

T = TypeVar("T")
Outcome = tuple[Resource, PeerError | None]


def describe_configs(services: Services, message: DescribeConfigsRequest, request: Request, reply: Reply) -> Steps:
    """All configurations of each resource, or those asked for, with defaults, and with synonyms and documentation if wanted.

    A resource that is named twice is described once. What topics have in common is in memory once, however many they are.

    Codes by resource: UNKNOWN_TOPIC_OR_PARTITION, INVALID_TOPIC_EXCEPTION, INVALID_REQUEST for another broker or an unknown type.
    """
    version = request.api_version
    once = {(resource.resource_type, resource.resource_name): resource for resource in message.resources}
    results = EncodedArray(element_writer(DescribeConfigsResponse, DescribeConfigsResult, version))
    kept: dict[object, EncodedArray] = {}
    for wanted in once.values():
        resource = Resource(wanted.resource_type, wanted.resource_name)
        result = DescribeConfigsResult(resource_type=resource.type, resource_name=resource.name)
        names = frozenset(wanted.configuration_keys or ()) or None
        try:
            key = (services.configs.kind(resource), names)
            configs = kept.get(key)
            if configs is None:
                configs = EncodedArray(element_writer(DescribeConfigsResponse, DescribeConfigsResourceResult, version))
                for view in services.configs.describe(resource, names):
                    configs.append(_entry(view, message))
                configs.join()
                if len(kept) < KEPT_MAX:
                    kept[key] = configs
            result.configs = configs.as_list()
        except PeerError as error:
            result.error_code, result.error_message = error.code, error.message
        results.append(result)
        yield None
    reply(DescribeConfigsResponse(results=results.as_list()))


def _entry(view: ConfigDescription, message: DescribeConfigsRequest) -> DescribeConfigsResourceResult:
    definition = view.definition
    synonyms = view.synonyms if message.include_synonyms else ()
    return DescribeConfigsResourceResult(
        name=definition.name,
        value=view.text,
        read_only=view.read_only,
        config_source=view.source,
        is_sensitive=definition.sensitive,
        synonyms=[DescribeConfigsSynonym(each.name, each.text, each.source) for each in synonyms],
        config_type=definition.type,
        documentation=definition.doc + ("" if definition.in_effect else NOT_IN_EFFECT) if message.include_documentation else None,
    )


def alter_configs(services: Services, message: AlterConfigsRequest, request: Request, reply: Reply) -> Steps:
    """Replace all configurations of each resource; codes as `Configs.replace`, INVALID_REQUEST for a resource named twice."""
    wanted = [
        (Resource(each.resource_type, each.resource_name), [(item.name, item.value) for item in each.configs]) for each in message.resources
    ]

    def change(resource: Resource, values: list[tuple[str, str | None]]) -> Steps:
        changes = yield from services.configs.replace(
            resource, values, validate_only=message.validate_only, is_forwarded=message.is_forwarded
        )
        _note(services, request, resource, changes)

    outcomes = yield from _each_once(wanted, change)
    reply(AlterConfigsResponse(responses=[AlterConfigsResourceResponse(*_code(error), *resource) for resource, error in outcomes]))


def incremental_alter_configs(services: Services, message: IncrementalAlterConfigsRequest, request: Request, reply: Reply) -> Steps:
    """Change single configurations of each resource; codes as `Configs.edit`, INVALID_REQUEST for a resource named twice."""
    wanted = [
        (
            Resource(each.resource_type, each.resource_name),
            [IncrementalChange(item.name, item.config_operation, item.value) for item in each.configs],
        )
        for each in message.resources
    ]

    def change(resource: Resource, edits: list[IncrementalChange]) -> Steps:
        changes = yield from services.configs.edit(resource, edits, validate_only=message.validate_only, is_forwarded=message.is_forwarded)
        _note(services, request, resource, changes)

    outcomes = yield from _each_once(wanted, change)
    reply(
        IncrementalAlterConfigsResponse(responses=[IncrementalResourceResponse(*_code(error), *resource) for resource, error in outcomes])
    )


def _note(services: Services, request: Request, resource: Resource, changes: list[str]) -> None:
    if changes:
        kind = ResourceType(resource.type).name.lower()
        services.admin_log.note(request, "configuration changed", **{kind: resource.name or "(all)"}, changes=" ".join(changes))


def _each_once(
    wanted: list[tuple[Resource, list[T]]], change: Callable[[Resource, list[T]], Steps]
) -> Generator[Pause, None, list[Outcome]]:
    times = Counter(resource for resource, _ in wanted)
    outcomes: list[Outcome] = []
    for resource, values in wanted:
        error = None
        try:
            if times[resource] > 1:
                raise PeerError(ErrorCode.INVALID_REQUEST, f"resource '{resource.name}' is named {times[resource]} times in one request")
            yield from change(resource, values)
        except PeerError as raised:
            error = raised
        outcomes.append((resource, error))
        yield None
    return outcomes


def _code(error: PeerError | None) -> tuple[ErrorCode, str | None]:
    return (ErrorCode.NONE, None) if error is None else (error.code, error.message)


def list_config_resources(services: Services, message: ListConfigResourcesRequest, request: Request, reply: Reply) -> Steps:
    """Names of what has configurations, by type; without a type, of all. UNSUPPORTED_VERSION for a type that does not exist."""
    if request.api_version < FIRST_WITH_TYPES:
        types: Iterable[int] = [ResourceType.CLIENT_METRICS]
    else:
        types = dict.fromkeys(message.resource_types or list(ResourceType))
    if any(each not in list(ResourceType) for each in types):
        reply(ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION))
        return
    resources = EncodedArray(element_writer(ListConfigResourcesResponse, ConfigResource, request.api_version))
    for each in types:
        for name in services.configs.resources(each):
            resources.append(ConfigResource(name, each))
            yield None
    reply(ListConfigResourcesResponse(config_resources=resources.as_list()))


HANDLERS = {
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.ALTER_CONFIGS: alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    ApiKey.LIST_CONFIG_RESOURCES: list_config_resources,
}
