"""The logs get an eighth of the files that the process may have open, within bounds, under the limit that holds when the broker starts."""

import resource

import pytest

from moldau.assembly import open_files


@pytest.mark.parametrize(
    ("limit", "share"), [(256, 64), (1024, 128), (4096, 512), (40_000, 5000), (1_048_576, 5000), (resource.RLIM_INFINITY, 5000)]
)
def test_the_share_of_the_logs(monkeypatch: pytest.MonkeyPatch, limit: int, share: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (limit, limit))
    assert open_files.log_files_max() == share


@pytest.mark.parametrize(("files", "connections"), [(64, 32), (256, 128), (1024, 768), (4096, 3072), (1_000_000, 50_000)])
def test_connections_have_by_default_what_is_left_for_them(monkeypatch: pytest.MonkeyPatch, files: int, connections: int) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _what: (files, files))
    assert open_files.connections_max() == connections
