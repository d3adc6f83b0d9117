"""Whether a schema becomes the next version of its subject, under which id; and whether it could.

Its metadata and rules are its own, or those of the version before it, between the defaults and the overrides of the configuration:

    default  <  the schema's own, else the latest version's  <  override

Tags and properties are merged by name, rules by name within their kind; the later side wins.

The same schema has one id in all subjects of a context. Under a subject that has it already, nothing is written: the answer is what exists.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from moldau.registry.decisions import ChangeDecision
from moldau.registry.errors import incompatible, invalid_schema, invalid_subject, not_permitted, registry_incomplete, store_failed
from moldau.registry.records import (
    NUMBER_MAX,
    RULES,
    ContextKey,
    SchemaKey,
    SchemaVersion,
    Write,
    encode_context,
    encode_key,
    encode_schema,
)
from moldau.registry.references import is_same, parse_new, parse_stored, pin_references
from moldau.registry.request import registered_view
from moldau.registry.schemas.compatibility import CompatibilityLevel, EarlierVersion, incompatibilities
from moldau.registry.scopes import IMPORT, check_register_mode, config_in_scope, mode_in_scope
from moldau.registry.state import next_number
from moldau.registry.subjects import DEFAULT_CONTEXT, context_of, is_valid, scope_of

if TYPE_CHECKING:
    from moldau.registry.body import SchemaBody
    from moldau.registry.schemas.language import ParsedSchema
    from moldau.registry.state import RegistryState

Parts = Mapping[str, Any]

_BESIDE = ("defaultMetadata", "overrideMetadata", "defaultRuleSet", "overrideRuleSet")


def has_beside(config: Parts) -> bool:
    """Whether a configuration gives metadata or rules to schemas."""
    return any(config.get(name) is not None for name in _BESIDE)


def populated(body: "SchemaBody", latest: "SchemaVersion | None", config: Parts) -> "SchemaBody":
    """The schema with all that it is registered with. A text that is not given is that of the latest version."""
    if latest is not None and not body.text.strip():
        body = replace(body, text=latest.text, type=latest.type, references=latest.references)
    metadata, rule_set = body.metadata, body.rule_set
    if latest is not None:
        metadata = latest.metadata if metadata is None else metadata
        rule_set = latest.rule_set if rule_set is None else rule_set
    return replace(
        body,
        metadata=_metadata(_metadata(config.get("defaultMetadata"), metadata), config.get("overrideMetadata")),
        rule_set=_rule_set(_rule_set(config.get("defaultRuleSet"), rule_set), config.get("overrideRuleSet")),
    )


def _metadata(first: Parts | None, then: Parts | None) -> Parts | None:
    if first is None or then is None:
        return first if then is None else then
    found: dict[str, Any] = {}
    for name in ("tags", "properties"):
        found[name] = dict(sorted({**(first.get(name) or {}), **(then.get(name) or {})}.items()))
    found["sensitive"] = sorted({*(first.get("sensitive") or ()), *(then.get("sensitive") or ())})
    return {name: value for name, value in found.items() if value}


def _rule_set(first: Parts | None, then: Parts | None) -> Parts | None:
    if first is None or then is None:
        return first if then is None else then
    found: dict[str, Any] = {kind: _rules(first.get(kind) or (), then.get(kind) or ()) for kind in RULES}
    found["enableAt"] = then.get("enableAt") or first.get("enableAt")
    return {name: value for name, value in found.items() if value}


def _rules(first: Sequence[Parts], then: Sequence[Parts]) -> list[Parts]:
    replaced = {rule.get("name") for rule in then}
    return [*(rule for rule in first if rule.get("name") not in replaced), *then]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A parsed schema that may be registered: `new` lacks its version and perhaps its id; `same` is the id that it has already.

    `bare` is the schema with the metadata and rules that it came with; None if it does not count, since it always gets others beside it.
    """

    body: "SchemaBody"
    schema: "ParsedSchema"
    new: SchemaVersion
    bare: SchemaVersion | None
    same: int | None
    versions: list[SchemaVersion]
    importing: bool

    @property
    def living(self) -> list[SchemaVersion]:
        """The subject's versions that are not deleted, rising."""
        return [each for each in self.versions if not each.deleted]

    def known(self, state: "RegistryState") -> dict[str, Any] | None:
        """The answer, if the subject has the schema already; under the id that is asked for, and in the version if one is.

        First as it came, then with what the latest version has beside it: a program that registers an old schema at each start gets the
        old version, whatever metadata a later one brought.
        """
        if self.body.version is not None and self.body.id is None:
            return None
        for wanted in (self.bare, self.new):
            for each in reversed(self.living):
                if wanted is not None and self._is_asked_for(each) and is_same(state, each, wanted):
                    return registered_view(each, self.body.text)
        return None

    def _is_asked_for(self, version: SchemaVersion) -> bool:
        return self.body.id in (None, version.id) and self.body.version in (None, version.version)


def candidate(state: "RegistryState", subject: str, body: "SchemaBody", *, normalize: bool = False) -> Candidate:
    """Read a schema that is to be registered. RestError 42201, 42208."""
    if not is_valid(subject):
        raise invalid_subject(subject)
    importing = mode_in_scope(state, subject) == IMPORT
    versions = state.versions(subject)
    config = config_in_scope(state, subject)
    given = body
    if not importing:
        body = populated(body, next((each for each in reversed(versions) if not each.deleted), None), config)
    if not body.text.strip():
        raise invalid_schema("Empty schema")
    body = pin_references(state, subject, body)
    normalize = not importing and (normalize or bool(config.get("normalize")))
    schema = parse_new(state, subject, body, normalize=normalize, stored=importing)
    new = SchemaVersion(
        subject, body.version or 0, body.id or 0, schema.canonical, body.type, body.references, body.metadata, body.rule_set
    )
    bare = replace(new, metadata=given.metadata, rule_set=given.rule_set) if given.text.strip() and not has_beside(config) else None
    return Candidate(body, schema, new, bare, state.id_of(context_of(subject), new.fingerprint), versions, importing)


def register(state: "RegistryState", subject: str, body: "SchemaBody", *, normalize: bool = False, force: bool = False) -> ChangeDecision:
    """Decide on a registration. RestError 409 if it does not fit the subject's versions, 42201 if it is no schema, and others.

    A schema that is registered already is returned in every mode. With `force` compatibility is not checked.
    """
    found = candidate(state, subject, body, normalize=normalize)
    answer = found.known(state)
    if answer is not None:
        return ChangeDecision(answer)
    if state.left_out:
        raise registry_incomplete(state.memory_bytes_max)
    check_register_mode(state, subject, importing=body.id is not None)
    if not found.importing and not force:
        problems = compatibility_problems(state, config_in_scope(state, subject), found.schema, found.body, found.living)
        if problems:
            raise incompatible(subject, problems)
    new = replace(
        found.new, version=_version(found.body, found.versions, found.importing), id=_id(state, found.body, found.new, found.same)
    )
    return _written(state, new, found.versions, found.body.text)


def compatibility_problems(
    state: "RegistryState", config: dict[str, Any], schema: "ParsedSchema", body: "SchemaBody", earlier: list[SchemaVersion]
) -> list[str]:
    """Why the schema may not follow the earlier versions (rising); empty if it may.

    With a compatibility group, only versions count whose metadata have the same value for the property that it names.
    """
    group = config.get("compatibilityGroup")
    if group is not None:
        mine = _property(body.metadata, group)
        earlier = [each for each in earlier if _property(each.metadata, group) == mine]
    holders = [EarlierVersion(each.version, lambda each=each: parse_stored(state, each)) for each in earlier]  # type: ignore[misc]
    level = config["compatibilityLevel"]
    found = incompatibilities(CompatibilityLevel(level), schema, holders)
    if found:
        fields = str(bool(config.get("validateFields"))).lower()
        found.append(f"{{validateFields: '{fields}', compatibility: '{level}'}}")
    return found


def _version(body: "SchemaBody", versions: list[SchemaVersion], importing: bool) -> int:
    following = next_number([each.version for each in versions])
    if body.version is None:
        return _given(following, "version")
    if body.version != following and not importing:
        raise invalid_schema("Version is not one more than previous version")
    return body.version


def _id(state: "RegistryState", body: "SchemaBody", new: SchemaVersion, same: int | None) -> int:
    """The id that is asked for, or that the schema has already in this context, or the next one."""
    context = context_of(new.subject)
    if body.id is None:
        return same if same is not None else _given(state.next_id(context), "id")
    holder = state.schema(context, body.id)
    if holder is not None and holder.fingerprint != new.fingerprint:
        raise not_permitted(f"Overwrite new schema with id {body.id} in context {scope_of(context)} is not permitted.")
    return body.id


def _given(number: int | None, what: str) -> int:
    """RestError 50001: there is none left."""
    if number is None:
        raise store_failed(f"Every {what} up to {NUMBER_MAX} is taken")
    return number


def _written(state: "RegistryState", new: SchemaVersion, versions: list[SchemaVersion], sent: str) -> ChangeDecision:
    writes: list[Write] = []
    context = context_of(new.subject)
    if context != DEFAULT_CONTEXT and context not in state.contexts:
        writes.append((encode_key(ContextKey(context)), encode_context(context)))
    for each in versions:
        key = SchemaKey(each.subject, each.version)
        if each.deleted and each.id == new.id and each.version < new.version and not state.referrers(key, deleted=True):
            writes.append((encode_key(key), None))  # registered again: its deleted version is removed for good
    writes.append((encode_key(SchemaKey(new.subject, new.version)), encode_schema(new)))
    return ChangeDecision(registered_view(new, sent), writes, new)


def _property(metadata: Any, name: str) -> Any:
    return ((metadata or {}).get("properties") or {}).get(name)
