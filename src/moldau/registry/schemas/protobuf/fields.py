"""Which types of a Protobuf field are alike on the wire, so that one may become the other.

The groups are those of the language guide ("updating a message type"): int32, int64, uint32, uint64, bool and enums; the two sint; the
fixed of each size; string and bytes.
"""

from collections.abc import Iterator
from typing import Literal

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from moldau.registry.schemas.protobuf.differences import Difference

_GROUPS = {
    "general": ("INT32", "INT64", "UINT32", "UINT64", "BOOL", "ENUM"),
    "signed": ("SINT32", "SINT64"),
    "text": ("STRING", "BYTES"),
    "fixed32": ("FIXED32", "SFIXED32"),
    "fixed64": ("FIXED64", "SFIXED64"),
    "float": ("FLOAT",),
    "double": ("DOUBLE",),
}
_GROUP_OF = {FieldDescriptorProto.Type.Value(f"TYPE_{name}"): group for group, names in _GROUPS.items() for name in names}


def kind(field: FieldDescriptorProto, map_entry: DescriptorProto | None) -> Literal["scalar", "message", "group", "map"]:
    """Enums are scalars: they are numbers on the wire. Groups are written otherwise than messages."""
    if map_entry is not None:
        return "map"
    if field.type == FieldDescriptorProto.TYPE_GROUP:
        return "group"
    return "scalar" if field.type in _GROUP_OF else "message"


def compare_scalars(before: FieldDescriptorProto, after: FieldDescriptorProto, path: tuple[str, ...]) -> Iterator[Difference]:
    """Types of one group may change; a list may become a single value, and back, only for string and bytes.

    A field without a label is an optional one, as the language has it.
    """
    group = _GROUP_OF[before.type]
    if group != _GROUP_OF[after.type]:
        yield Difference("FIELD_SCALAR_KIND_CHANGED", path)
    elif before.label != after.label:
        yield Difference("FIELD_STRING_OR_BYTES_LABEL_CHANGED" if group == "text" else "FIELD_NUMERIC_LABEL_CHANGED", path)
