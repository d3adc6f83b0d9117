"""A data directory that is a file is named for what it is, before anything is started."""

from pathlib import Path

from click.testing import CliRunner

from moldau.cli.application import application


def test_a_file_is_no_data_directory(tmp_path: Path) -> None:
    file = tmp_path / "readme.py"
    file.write_text("")
    result = CliRunner().invoke(application, ["serve", "--data", str(file)])
    assert (result.exit_code, result.output) == (1, f"Error: {file}: is a file, not a directory\n")
