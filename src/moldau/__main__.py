"""``python -m moldau`` is the command ``moldau``."""

from moldau.cli.main import main

main()
