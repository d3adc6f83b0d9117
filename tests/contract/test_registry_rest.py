"""The REST interface over a real registry and broker: paths, answers, content types, and a clear error for whatever is wrong (F1)."""

import json
import socket
from collections.abc import Iterator
from urllib.parse import quote, urlsplit

import pytest

from moldau.registry.client import IncompatibleSchemaError, Reference, RegistryClient, RegistryError, UnknownSchemaError
from moldau.testing import Broker
from support.registry import V1, Rest, record

FLIGHT = json.dumps(record("Flight", ("number", "int")))
FLIGHT_2 = json.dumps(record("Flight", ("number", "int"), ("gate", "string", "")))
BROKEN = json.dumps(record("Flight", ("number", "string")))


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with Broker(registry=True) as broker:
        yield broker.registry_url


@pytest.fixture
def rest(url: str) -> Rest:
    return Rest(url)


def test_a_subject_from_its_first_version_to_its_end(rest: Rest) -> None:
    registered = rest.ok("POST", "/subjects/life/versions", {"schema": FLIGHT})
    assert {"id", "version", "guid", "schemaType", "schema"} <= registered.keys()
    again = rest.ok("POST", "/subjects/life/versions", {"schema": FLIGHT})
    assert (again["id"], again["version"]) == (registered["id"], 1)
    second = rest.ok("POST", "/subjects/life/versions", {"schema": FLIGHT_2})
    assert second["version"] == 2
    assert rest.ok("GET", "/subjects/life/versions") == [1, 2]
    latest = rest.ok("GET", "/subjects/life/versions/latest")
    assert (latest["subject"], latest["version"], latest["id"]) == ("life", 2, second["id"])
    assert json.loads(latest["schema"]) == json.loads(FLIGHT_2)
    assert rest.ok("GET", "/subjects/life/versions/-1") == latest
    assert rest.ok("GET", "/subjects/life/versions/2/schema") == json.loads(FLIGHT_2)
    assert rest.ok("POST", "/subjects/life", {"schema": FLIGHT})["version"] == 1
    assert rest.ok("GET", f"/schemas/ids/{second['id']}")["schema"] == latest["schema"]
    assert rest.ok("GET", f"/schemas/ids/{second['id']}/schema") == json.loads(FLIGHT_2)
    assert rest.ok("GET", f"/schemas/ids/{second['id']}?fetchMaxId=true")["maxId"] >= second["id"]
    assert rest.ok("GET", f"/schemas/ids/{second['id']}?subject=life")["version"] == 2
    assert rest.ok("GET", f"/schemas/ids/{second['id']}/subjects") == ["life"]
    assert rest.ok("GET", f"/schemas/ids/{second['id']}/versions") == [{"subject": "life", "version": 2}]
    assert rest.ok("GET", f"/schemas/guids/{second['guid']}")["schema"] == latest["schema"]
    assert rest.ok("GET", f"/schemas/guids/{second['guid']}/ids") == [{"context": ".", "id": second["id"]}]
    assert [each["version"] for each in rest.ok("GET", "/schemas?subjectPrefix=life")] == [1, 2]
    assert [each["version"] for each in rest.ok("GET", "/schemas?subjectPrefix=life&latestOnly=true")] == [2]
    assert rest.ok("GET", "/subjects/life/versions/1/referencedby") == []
    assert rest.ok("DELETE", "/subjects/life/versions/1") == 1
    assert rest.ok("GET", "/subjects/life/versions?deletedOnly=true") == [1]
    assert rest.ok("DELETE", "/subjects/life/versions/1?permanent=true") == 1
    assert rest.ok("DELETE", "/subjects/life") == [2]
    assert "life" not in rest.ok("GET", "/subjects")
    assert "life" in rest.ok("GET", "/subjects?deleted=true")
    assert rest.ok("DELETE", "/subjects/life?permanent=true") == [2]
    assert "life" not in rest.ok("GET", "/subjects?deleted=true")


@pytest.mark.parametrize("subject", ["a/b-value", "with space", "ünïcode", "100%", "q?x=1&y", "dots..", "#", "a+b"])
def test_a_subject_may_have_any_name(rest: Rest, subject: str) -> None:
    path = f"/subjects/{quote(subject, safe='')}"
    rest.ok("POST", f"{path}/versions", {"schema": FLIGHT})
    assert subject in rest.ok("GET", "/subjects")
    assert rest.ok("GET", f"{path}/versions/1")["subject"] == subject


def test_settings_are_read_set_and_taken_back(rest: Rest) -> None:
    assert rest.ok("GET", "/config") == {"compatibilityLevel": "BACKWARD"}
    assert rest("GET", "/config/set").code == 40408
    assert rest.ok("GET", "/config/set?defaultToGlobal=true") == {"compatibilityLevel": "BACKWARD"}
    body = {
        "compatibility": "full_transitive",
        "alias": "other",
        "normalize": True,
        "compatibilityGroup": "major",
        "defaultMetadata": {"properties": {"a": "b"}},
        "overrideRuleSet": {"domainRules": [{"name": "r", "type": "CEL"}]},
    }
    assert rest.ok("PUT", "/config/set", body) == {**body, "compatibility": "FULL_TRANSITIVE"}
    kept = rest.ok("GET", "/config/set")
    assert kept.pop("compatibilityLevel") == "FULL_TRANSITIVE"
    assert kept == {name: value for name, value in body.items() if name != "compatibility"}
    assert rest.ok("DELETE", "/config/set")["compatibilityLevel"] == "FULL_TRANSITIVE"
    assert rest("DELETE", "/config/set").code == 40401
    assert rest.ok("GET", "/mode") == {"mode": "READWRITE"}
    assert rest("GET", "/mode/set").code == 40409
    assert rest.ok("PUT", "/mode/set", {"mode": "readonly"}) == {"mode": "READONLY"}
    assert rest("POST", "/subjects/set/versions", {"schema": FLIGHT}).code == 42205
    assert rest.ok("GET", "/mode/set") == {"mode": "READONLY"}
    assert rest.ok("DELETE", "/mode/set") == {"mode": "READONLY"}


def test_an_alias_leads_to_its_subject(rest: Rest) -> None:
    rest.ok("POST", "/subjects/real/versions", {"schema": FLIGHT})
    rest.ok("PUT", "/config/nick", {"alias": "real"})
    assert rest.ok("GET", "/subjects/nick/versions/latest")["subject"] == "real"


def test_contexts_are_reached_by_their_subjects_and_by_paths_of_their_own(rest: Rest) -> None:
    first = rest.ok("POST", f"/subjects/{quote(':.tower:ping')}/versions", {"schema": FLIGHT_2})
    assert first["id"] == 1
    assert rest.ok("POST", "/contexts/.tower/subjects/pong/versions", {"schema": FLIGHT_2})["id"] == 1
    assert rest.ok("GET", "/contexts/.tower/subjects") == [":.tower:ping", ":.tower:pong"]
    assert rest.ok("GET", f"/subjects?subjectPrefix={quote(':.tower:po')}") == [":.tower:pong"]
    assert rest.ok("GET", "/contexts/.tower/schemas/ids/1/subjects") == [":.tower:ping", ":.tower:pong"]
    assert rest.ok("GET", f"/schemas/ids/1?subject={quote(':.tower:')}")["schema"] == first["schema"]
    assert ".tower" in rest.ok("GET", "/contexts")
    rest.ok("PUT", "/contexts/.tower/config", {"compatibility": "NONE"})
    assert rest.ok("GET", f"/config/{quote(':.tower:')}") == {"compatibilityLevel": "NONE"}
    assert rest("DELETE", "/contexts/.tower").code == 42211


def test_compatibility_is_reported_with_reasons(rest: Rest) -> None:
    rest.ok("POST", "/subjects/judged/versions", {"schema": FLIGHT})
    path = "/compatibility/subjects/judged/versions"
    assert rest.ok("POST", f"{path}/latest", {"schema": FLIGHT_2}) == {"is_compatible": True}
    assert rest.ok("POST", path, {"schema": BROKEN}) == {"is_compatible": False}
    told = rest.ok("POST", f"{path}?verbose=true", {"schema": BROKEN})
    assert not told["is_compatible"]
    assert "TYPE_MISMATCH" in told["messages"][0]
    assert "/fields/0/type" in told["messages"][0]
    assert rest("POST", f"{path}/9", {"schema": FLIGHT}).code == 40402
    assert rest("POST", path, {"schema": "{"}).code == 42201
    verbose = rest.ok("POST", f"{path}?verbose=true", {"schema": "{"})
    assert not verbose["is_compatible"]
    refused = rest("POST", "/subjects/judged/versions", {"schema": BROKEN})
    assert (refused.status, refused.code) == (409, 409)
    assert "/fields/0/type" in refused.body["message"]


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/schemas/ids/999999", None, 404, 40403),
        ("GET", "/schemas/ids/none", None, 404, 404),
        ("GET", "/schemas/guids/none", None, 404, 40403),
        ("GET", "/subjects/nobody/versions", None, 404, 40401),
        ("GET", "/subjects/nobody/versions/1", None, 404, 40401),
        ("GET", "/subjects/known/versions/99", None, 404, 40402),
        ("GET", "/subjects/known/versions/0", None, 422, 42202),
        ("GET", "/subjects/known/versions/first", None, 422, 42202),
        ("GET", "/subjects/known/versions/2147483648", None, 422, 42202),
        ("GET", f"/subjects/known/versions/{'9' * 5000}", None, 422, 42202),
        ("GET", f"/schemas/ids/{'9' * 5000}", None, 404, 404),
        ("GET", "/subjects?offset=x", None, 422, 422),
        ("GET", f"/subjects?limit={'9' * 5000}", None, 422, 422),
        ("POST", "/subjects/nobody", {"schema": FLIGHT}, 404, 40401),
        ("POST", "/subjects/known", {"schema": FLIGHT_2}, 404, 40403),
        ("POST", "/subjects/known/versions", {"schema": '{"type": "recor"}'}, 422, 42201),
        ("POST", "/subjects/known/versions", {"schema": FLIGHT, "schemaType": "COBOL"}, 422, 42201),
        ("POST", "/subjects/known/versions", {"schema": 7}, 422, 422),
        ("POST", "/subjects/known/versions", [], 422, 422),
        ("POST", "/subjects/__GLOBAL/versions", {"schema": FLIGHT}, 422, 42208),
        ("POST", "/subjects/__EMPTY/versions", {"schema": FLIGHT}, 422, 42208),
        ("POST", "/subjects//versions", {"schema": FLIGHT}, 422, 42208),
        ("POST", "/subjects/%20%20/versions", {"schema": FLIGHT}, 422, 42208),
        ("POST", "/subjects/a%0Ab/versions", {"schema": FLIGHT}, 422, 42208),
        ("POST", "/subjects/%3A.fleet%3A/versions", {"schema": FLIGHT}, 422, 42208),
        ("POST", "/subjects/%3A.__GLOBAL%3Aa/versions", {"schema": FLIGHT}, 422, 42208),
        ("POST", "/contexts/a%3Ab/subjects/c/versions", {"schema": FLIGHT}, 422, 42208),
        ("POST", "/subjects/%FF/versions", {"schema": FLIGHT}, 422, 42208),
        ("POST", "/subjects/%2E/versions", {"schema": FLIGHT}, 422, 42208),
        ("POST", "/subjects/%2E%2E/versions", {"schema": FLIGHT}, 422, 42208),
        ("GET", "/subjects//versions", None, 404, 40401),
        ("PUT", "/config/%20", {"compatibility": "FULL"}, 422, 42208),
        ("PUT", "/mode/a%00", {"mode": "READONLY"}, 422, 42208),
        ("DELETE", "/subjects/nobody", None, 404, 40401),
        ("DELETE", "/subjects/known?permanent=true", None, 404, 40405),
        ("DELETE", "/subjects/known/versions/1?permanent=true", None, 404, 40407),
        ("PUT", "/config", {"compatibility": "SIDEWAYS"}, 422, 42203),
        ("PUT", "/mode", {"mode": "SLEEP"}, 422, 42204),
        ("PUT", "/mode", {}, 422, 42204),
        ("OPTIONS", "/nothing", None, 404, 404),
        ("GET", "/nothing", None, 404, 404),
        ("PATCH", "/subjects", None, 405, 405),
        ("POST", "/schemas/types", {}, 405, 405),
    ],
)
def test_whatever_is_wrong_has_its_error(rest: Rest, method: str, path: str, body: object, status: int, code: int) -> None:
    rest.ok("POST", "/subjects/known/versions", {"schema": FLIGHT})
    told = rest(method, path, body)
    assert (told.status, told.code) == (status, code), told
    assert told.body["message"]
    assert told.kind == V1


def test_a_path_says_which_methods_it_has(rest: Rest) -> None:
    """HEAD where there is GET, as proxies and probes ask; OPTIONS, and each refusal, name what there is."""
    rest.ok("POST", "/subjects/headed/versions", {"schema": FLIGHT})
    head = rest("HEAD", "/subjects/headed/versions/1")
    assert (head.status, head.body, head.kind) == (200, None, V1)
    assert rest("HEAD", "/subjects/nobody/versions/1").status == 404
    assert rest("HEAD", "/v1/metadata/id").status == 200
    options = rest("OPTIONS", "/config/headed")
    assert (options.status, options.body, options.allow) == (200, None, "HEAD,GET,PUT,DELETE,OPTIONS")
    refused = rest("PUT", "/subjects/headed", {})
    assert (refused.status, refused.code, refused.allow) == (405, 405, "POST,DELETE,OPTIONS")
    assert rest("HEAD", "/subjects/headed").status == 405


def test_a_context_that_is_empty_again_goes_without_an_answer(rest: Rest) -> None:
    rest.ok("POST", "/contexts/.gone/subjects/a/versions", {"schema": FLIGHT})
    rest.ok("DELETE", "/contexts/.gone/subjects/a")
    rest.ok("DELETE", "/contexts/.gone/subjects/a?permanent=true")
    deleted = rest("DELETE", "/contexts/.gone")
    assert (deleted.status, deleted.body) == (204, None)
    assert ".gone" not in rest.ok("GET", "/contexts")


def test_a_format_that_is_not_known_gives_the_text_as_it_is_stored(rest: Rest) -> None:
    """Confluent's registry does so on purpose: clients of later versions ask for formats of theirs."""
    rest.ok("POST", "/subjects/formed/versions", {"schema": FLIGHT})
    plain = rest.ok("GET", "/subjects/formed/versions/1")
    for form in ("zzz", "default", "RESOLVED"):
        assert rest.ok("GET", f"/subjects/formed/versions/1?format={form}") == plain


def test_bodies_that_are_no_bodies_are_refused_and_the_registry_continues(rest: Rest, url: str) -> None:
    path = "/subjects/body/versions"
    assert rest("POST", path, raw=b"{").code == 400
    assert rest("POST", path, raw=b"").code == 422
    assert rest("POST", path, raw=b"\xff\xfe").code == 400
    assert rest("POST", path, raw=b'{"schema": NaN}').code == 400
    assert rest("POST", path, raw=b'{"schema": "{}", "references": [{"name": "\\ud800", "subject": "s", "version": 1}]}').code == 400
    assert rest("POST", path, raw=b"[" * 10_000).body == {"error_code": 400, "message": "The body is JSON that is nested too deeply"}
    refused = rest("POST", path, raw=b"{}", headers={"Content-Type": "text/plain"})
    assert refused.code == 415
    assert f"'text/plain' is not accepted, only {V1}, " in refused.body["message"]
    assert rest("POST", path, raw=b" " * (5 << 20)).code == 413
    address = urlsplit(url)
    for garbage in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET / HTTP/9.9\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"):
        with socket.create_connection((address.hostname, address.port), 10) as peer:
            peer.sendall(garbage)
            peer.recv(4096)
    assert rest.ok("GET", "/") == {}


def test_a_schema_that_no_record_can_hold_is_refused_and_the_next_is_taken(rest: Rest) -> None:
    fields = [(f"f{number}", "string", "x" * 100) for number in range(12_000)]
    told = rest("POST", "/subjects/huge/versions", {"schema": json.dumps(record("Huge", *fields))})
    assert (told.status, told.code) == (422, 42209)
    assert rest.ok("POST", "/subjects/huge/versions", {"schema": FLIGHT})["version"] == 1


def test_answers_have_the_type_that_was_asked_for(rest: Rest) -> None:
    for accept, kind in [
        ("application/json", "application/json"),
        ("application/vnd.schemaregistry+json; qs=0.9, application/json; qs=0.5", "application/vnd.schemaregistry+json"),
        ("*/*", V1),
        ("text/html", V1),
    ]:
        assert rest("GET", "/subjects", headers={"Accept": accept}).kind == kind


def test_lists_come_in_pages(rest: Rest) -> None:
    for number in range(5):
        rest.ok("POST", f"/subjects/page-{number}/versions", {"schema": FLIGHT})
    assert rest.ok("GET", "/subjects?subjectPrefix=page-&offset=1&limit=2") == ["page-1", "page-2"]
    assert rest.ok("GET", "/subjects?subjectPrefix=page-&offset=4&limit=-1") == ["page-4"]
    assert rest.ok("GET", "/subjects?subjectPrefix=page-&limit=0") == []


def test_our_client_against_our_registry(url: str) -> None:
    """`registry/client.py` keeps what cannot change, tells errors apart, and tries one address after the other."""
    with RegistryClient(f"http://127.0.0.1:1,{url}") as client:
        point = client.register("c-point", json.dumps(record("Point", ("x", "int"))))
        assert client.register("c-point", json.dumps(record("Point", ("x", "int")))) == point
        text = json.dumps(record("Line", ("from", "Point")))
        line = client.register("c-line", text, references=[Reference("Point", "c-point", 1)])
        found = client.schema(line)
        assert (found.type, found.references) == ("AVRO", (Reference("Point", "c-point", 1),))
        assert client.schema(line) is found
        assert [each.subject for each in client.referenced(found)] == ["c-point"]
        assert client.latest("c-line").id == line
        assert client.lookup("c-line", text, references=[Reference("Point", "c-point", 1)]).version == 1
        assert client.versions("c-line") == [1]
        assert {"c-point", "c-line"} <= set(client.subjects())
        assert client.compatibility("c-point") == "BACKWARD"
        with pytest.raises(IncompatibleSchemaError, match=r"^subject [^\n]*: field '\w+': [^\n]*/fields/0/type[^\n]*$"):
            client.register("c-point", json.dumps(record("Point", ("x", "string"))))
        assert client.incompatibilities("c-point", json.dumps(record("Point", ("x", "string"))))
        client.set_compatibility("c-point", "NONE")
        assert client.register("c-point", json.dumps(record("Point", ("x", "string")))) > point
        with pytest.raises(UnknownSchemaError, match="999999") as unknown:
            client.schema(999_999)
        assert unknown.value.schema_id == 999_999
        with pytest.raises(RegistryError) as missing:
            client.latest("c-none")
        assert (missing.value.status, missing.value.code) == (404, 40401)
        with pytest.raises(RegistryError) as invalid:
            client.register("c-point", "{")
        assert invalid.value.code == 42201


def test_our_client_within_a_context(url: str) -> None:
    with RegistryClient(f"{url}/contexts/.depot") as client:
        assert client.register("only-here", FLIGHT) == 1
        assert client.schema(1).text == client.latest("only-here").text
        assert client.subjects() == [":.depot:only-here"]
