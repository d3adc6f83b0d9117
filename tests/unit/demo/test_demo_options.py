"""A directory of the demonstration keeps what it was made with: the number of its brokers too."""

import json
from pathlib import Path

import pytest

from moldau.demo.file_input import open_input
from moldau.demo.options import BROKER_FOLDER, BROKERS, CLUSTER_FOLDER, DemoError, DemoOptions, check_description


def options(directory: Path, brokers: int | None = None) -> DemoOptions:
    events = directory / "events.jsonl"
    events.write_text('{"id": 1}\n')
    return DemoOptions(directory, open_input(events, None, None), file=events, small=True, brokers=brokers)


def test_there_are_three_brokers_unless_the_directory_has_another_number(tmp_path: Path) -> None:
    assert check_description(tmp_path, options(tmp_path)) == BROKERS == 3
    assert check_description(tmp_path, options(tmp_path, 3)) == 3
    with pytest.raises(DemoError, match="was made with brokers 3, not 1; use another --dir"):
        check_description(tmp_path, options(tmp_path, 1))


@pytest.mark.parametrize("given", [None, 5])
def test_a_number_that_is_given_is_kept(given: int | None, tmp_path: Path) -> None:
    assert check_description(tmp_path, options(tmp_path, 5)) == 5
    assert check_description(tmp_path, options(tmp_path, given)) == 5


def test_a_directory_from_before_there_were_clusters_has_one(tmp_path: Path) -> None:
    check_description(tmp_path, options(tmp_path))
    file = tmp_path / "demo.json"
    description = json.loads(file.read_text())
    del description["brokers"]
    file.write_text(json.dumps(description))
    assert check_description(tmp_path, options(tmp_path)) == 1
    with pytest.raises(DemoError, match="was made with brokers 1, not 3"):
        check_description(tmp_path, options(tmp_path, 3))


@pytest.mark.parametrize("folder", [BROKER_FOLDER, CLUSTER_FOLDER])
def test_data_of_brokers_without_a_description_is_not_touched(folder: str, tmp_path: Path) -> None:
    (tmp_path / folder).mkdir()
    with pytest.raises(DemoError, match="holds data of brokers and no demo"):
        check_description(tmp_path, options(tmp_path))
