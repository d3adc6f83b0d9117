"""What becomes of fields that move into a oneof of a Protobuf message, out of it, or from one to another."""

from collections.abc import Iterator

from google.protobuf.descriptor_pb2 import DescriptorProto

from moldau.registry.schemas.protobuf.differences import Difference


class Members:
    """The fields of a message by number, and which oneof each is in. What `optional` of proto3 makes is no oneof."""

    def __init__(self, message: DescriptorProto) -> None:
        self.fields = {field.number: field for field in message.field}
        self.oneof_of = {
            field.number: message.oneof_decl[field.oneof_index].name
            for field in message.field
            if field.HasField("oneof_index") and not field.proto3_optional
        }

        self.of: dict[str, list[int]] = {}
        """The numbers of each oneof's fields, in their order."""
        for number, oneof in self.oneof_of.items():
            self.of.setdefault(oneof, []).append(number)


def compare_oneofs(before: Members, after: Members, path: tuple[str, ...]) -> Iterator[Difference]:
    """Oneofs by name, and the fields that left one."""
    old, new = (dict.fromkeys(members.oneof_of.values()) for members in (before, after))
    for oneof in new:
        yield from _newly_exclusive(before, after, oneof, path)
    for oneof in sorted(old.keys() ^ new.keys()):
        yield Difference("ONEOF_REMOVED" if oneof in old else "ONEOF_ADDED", (*path, oneof))
    kept = {oneof for oneof, numbers in before.of.items() if any(number in after.fields for number in numbers)}
    for number, oneof in before.oneof_of.items():
        if number in after.fields:
            if number not in after.oneof_of:
                yield Difference("ONEOF_FIELD_MOVED_TO_TOP_LEVEL", (*path, str(number)))
        elif oneof in new or oneof in kept:
            # The oneof went with all its fields, or else data of this field is lost while the others stay.
            yield Difference("ONEOF_FIELD_REMOVED", (*path, oneof, str(number)))


def _newly_exclusive(before: Members, after: Members, oneof: str, path: tuple[str, ...]) -> Iterator[Difference]:
    """Fields that could be set together, and can be no longer: they come from different oneofs, or from outside any."""
    groups = set()
    from_outside = 0
    for number in after.of[oneof]:
        if number in before.oneof_of:
            groups.add(before.oneof_of[number])
        elif number in before.fields:
            from_outside += 1
    if len(groups) + from_outside > 1:
        yield Difference("MULTIPLE_FIELDS_MOVED_TO_ONEOF" if from_outside > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF", (*path, oneof))
