"""What counts as an element of a request, and arrays whose elements are encoded before the rest."""

import pytest

from moldau.model.errors import ProtocolError
from moldau.protocol.codec import decoder, element_writer, encode, step_decoder
from moldau.protocol.codec.encoded import EncodedArray
from moldau.protocol.fast.fetch import decode_fetch
from moldau.protocol.fast.produce import decode_produce
from moldau.protocol.messages.api_versions import ApiVersionsRequest
from moldau.protocol.messages.fetch import FetchRequest
from moldau.protocol.messages.group_admin import DescribeGroupsRequest, ListedGroup, ListGroupsResponse
from moldau.protocol.messages.produce import ProduceRequest
from moldau.protocol.varint import uvarint

BOUND = 10


def with_tags(message: object, version: int, count: int) -> bytes:
    """The message with so many tagged fields that nobody knows, each of two bytes."""
    data = encode(message, version)
    assert data.endswith(b"\0")
    return data[:-1] + uvarint(count) + b"\x63\x00" * count


def test_tagged_fields_of_a_request_count_as_elements() -> None:
    few, many = (with_tags(ApiVersionsRequest("a", "1"), 3, count) for count in (BOUND, BOUND + 1))
    assert decoder(ApiVersionsRequest, 3)(few, 0, BOUND)[0].client_software_name == "a"
    with pytest.raises(ProtocolError, match="more than 10 elements"):
        decoder(ApiVersionsRequest, 3)(many, 0, BOUND)
    with pytest.raises(ProtocolError, match="more than 10 elements"):
        list(step_decoder(ApiVersionsRequest, 3)(many, 0, BOUND))


def test_they_count_together_with_those_of_arrays() -> None:
    with pytest.raises(ProtocolError, match="more than 10 elements"):
        decoder(DescribeGroupsRequest, 5)(with_tags(DescribeGroupsRequest(["g"] * 6), 5, 5), 0, BOUND)


def test_they_count_on_the_short_ways_too() -> None:
    with pytest.raises(ProtocolError, match="more than 10 elements"):
        decode_fetch(memoryview(with_tags(FetchRequest(), 12, BOUND + 1)), 0, 12, BOUND)
    with pytest.raises(ProtocolError, match="more than 10 elements"):
        decode_produce(memoryview(with_tags(ProduceRequest(acks=1), 9, BOUND + 1)), 0, 9, 1 << 20, BOUND)


@pytest.mark.parametrize("version", [0, 3, 5])
def test_an_array_of_encoded_elements_is_encoded_as_the_elements_are(version: int) -> None:
    groups = [ListedGroup(f"g{number}", "consumer") for number in range(3)]
    array = EncodedArray(element_writer(ListGroupsResponse, ListedGroup, version))
    for group in groups[:2]:
        array.append(group)
    array.join()
    array.append(groups[2])
    assert encode(ListGroupsResponse(groups=array.as_list()), version) == encode(ListGroupsResponse(groups=groups), version)
