"""Quotas of users, clients and addresses.

* DescribeClientQuotas (key 48): tells the quotas of users, clients and addresses.
* AlterClientQuotas (key 49): changes the quotas of users, clients and addresses.
"""

from typing import ClassVar

from moldau.protocol.api_keys import ApiKey
from moldau.protocol.codec.fields import array, boolean, float64, int8, int16, int32, message, string


@message
class ComponentData:
    """A filter on one kind of entity: 0 exact name, 1 the default, 2 any that is named."""

    entity_type: str = string("0+")
    match_type: int = int8("0+")
    match: str | None = string("0+", nullable="0+")


@message
class DescribeClientQuotasRequest:
    """The filters; `strict` leaves out entities with further components."""

    API: ClassVar = ApiKey.DESCRIBE_CLIENT_QUOTAS

    components: list[ComponentData] = array(ComponentData, "0+")
    strict: bool = boolean("0+")


@message
class EntityData:
    """One component of an entity; a null name is the default entity."""

    entity_type: str = string("0+")
    entity_name: str | None = string("0+", nullable="0+")


@message
class ValueData:
    """One quota."""

    key: str = string("0+")
    value: float = float64("0+")


@message
class EntryData:
    """An entity and its quotas."""

    entity: list[EntityData] = array(EntityData, "0+")
    values: list[ValueData] = array(ValueData, "0+")


@message
class DescribeClientQuotasResponse:
    """Quotas by entity."""

    API: ClassVar = ApiKey.DESCRIBE_CLIENT_QUOTAS

    throttle_time_ms: int = int32("0+")
    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entries: list[EntryData] | None = array(EntryData, "0+", nullable="0+")


@message
class OpData:
    """One quota to set or to remove."""

    key: str = string("0+")
    value: float = float64("0+")
    remove: bool = boolean("0+")


@message
class AlterEntryData:
    """An entity and the changes to its quotas."""

    entity: list[EntityData] = array(EntityData, "0+")
    ops: list[OpData] = array(OpData, "0+")


@message
class AlterClientQuotasRequest:
    """The changes, and whether to only check them."""

    API: ClassVar = ApiKey.ALTER_CLIENT_QUOTAS

    entries: list[AlterEntryData] = array(AlterEntryData, "0+")
    validate_only: bool = boolean("0+")


@message
class EntryResult:
    """What became of the changes to one entity."""

    error_code: int = int16("0+")
    error_message: str | None = string("0+", nullable="0+")
    entity: list[EntityData] = array(EntityData, "0+")


@message
class AlterClientQuotasResponse:
    """One answer for each entity."""

    API: ClassVar = ApiKey.ALTER_CLIENT_QUOTAS

    throttle_time_ms: int = int32("0+")
    entries: list[EntryResult] = array(EntryResult, "0+")
