"""Subjects and the contexts they live in, and references to their versions: ``:.fleet:orders-value`` is the subject ``orders-value`` of the
context ``.fleet``.

A context is a registry within the registry, with ids of its own. Subjects without one are in the default context ``.``; ``:*:`` means
all contexts. Settings of ``:.fleet:`` hold for the whole context, those of ``:.__GLOBAL:`` for all contexts.
"""

from typing import NamedTuple

DEFAULT_CONTEXT = "."
GLOBAL_CONTEXT = ".__GLOBAL"
GLOBAL_SCOPE = f":{GLOBAL_CONTEXT}:"
EVERY_CONTEXT = ":*:"

_RESERVED_NAMES = ("__GLOBAL", "__EMPTY", ".", "..")
"""A client that follows the rules of URLs takes dots alone out of a path, and cannot reach such a subject."""


class Subject(NamedTuple):
    """A subject taken apart; its context begins with a dot."""

    context: str
    name: str

    def __str__(self) -> str:
        return f"{scope_of(self.context)}{self.name}"


def parse_subject(text: str) -> Subject:
    """The context and the name of a subject. Every text is one."""
    if text.startswith(":."):
        context, _, name = text[1:].partition(":")
        return Subject(context, name)
    if text.startswith(EVERY_CONTEXT):
        return Subject("*", text[len(EVERY_CONTEXT) :])
    return Subject(DEFAULT_CONTEXT, text)


def normalize(text: str) -> str:
    """A subject in the one form under which it is stored: ``:.:orders`` is ``orders``."""
    return str(parse_subject(text)) if text.startswith(":") else text


def context_of(subject: str) -> str:
    """The context of a subject."""
    return parse_subject(subject).context if subject.startswith(":") else DEFAULT_CONTEXT


def scope_of(context: str) -> str:
    """What stands before the names of a context's subjects: ``:.fleet:``, or nothing for the default context."""
    return "" if context == DEFAULT_CONTEXT else f":{context}:"


def in_context_of(parent: str, subject: str) -> str:
    """A subject as a schema of `parent` means it in its references: one without a context is in the parent's."""
    if subject.startswith(":."):
        return normalize(subject)
    return f"{scope_of(context_of(parent))}{subject}"


def is_valid(text: str, *, for_settings: bool = False) -> bool:
    """Whether a subject may have this name. The context of global settings has no schemas."""
    if any(ord(letter) < 0x20 or 0x7F <= ord(letter) < 0xA0 for letter in text):
        return False
    subject = parse_subject(text)
    if subject.name in _RESERVED_NAMES or subject.name.isspace():
        return False
    if for_settings:
        return True
    return bool(subject.name) and subject.name != "*" and subject.context not in (GLOBAL_CONTEXT, "*")


class Reference(NamedTuple):
    """Schema text may use `name` (an Avro name, a URL of JSON Schema, a file of Protobuf): it is this version of this subject."""

    name: str
    subject: str
    version: int
