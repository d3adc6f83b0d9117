"""A request that the REST interface does not have is answered in the words of Confluent's registry."""

import pytest

from moldau.registry.errors import RestError
from moldau.registry.routes import NotAllowedError, find_route


@pytest.mark.parametrize("path", ["/nothing", "/subjects/orders/versions/1/nothing"])
def test_a_path_that_does_not_exist_is_not_found(path: str) -> None:
    with pytest.raises(RestError) as refused:
        find_route("GET", path)
    assert (refused.value.status, refused.value.code, refused.value.message) == (404, 404, "HTTP 404 Not Found")


def test_a_method_that_a_path_does_not_have_is_answered_with_those_that_it_has() -> None:
    with pytest.raises(NotAllowedError) as refused:
        find_route("PUT", "/subjects/orders")
    assert (refused.value.status, refused.value.message, refused.value.allow) == (405, "HTTP 405 Method Not Allowed", "POST,DELETE,OPTIONS")
