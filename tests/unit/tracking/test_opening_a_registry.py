"""A producer and a consumer are given a registry that they can use, or are not made."""

from typing import Any

import pytest

from moldau.tracking import TrackedConsumer, TrackerProducer


@pytest.mark.parametrize("registry", [None, 5, b"http://127.0.0.1:8081", "", "htp:/x", "ftp://127.0.0.1"])
def test_what_is_no_registry_is_refused_when_it_is_named(registry: Any) -> None:
    """Not when the first event needs it."""
    for made in (lambda: TrackerProducer(service="shop", registry=registry), lambda: TrackedConsumer(registry=registry)):
        with pytest.raises(ValueError, match="registry"):
            made()
