"""``moldau completion``: the script that makes a shell complete commands, options and names."""

import click

from moldau.cli.options import NearChoice

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_MOLDAU_COMPLETE"
"""Set by the script when it asks ``moldau`` for completions."""


@click.command("completion")
@click.argument("shell", type=NearChoice(SHELLS))
def completion(shell: str) -> None:
    """Print the script that makes a shell complete what is typed after moldau: commands, options, names of topics and groups.

    \b
    bash, in ~/.bashrc:                   eval "$(moldau completion bash)"
    zsh, in ~/.zshrc after compinit:      eval "$(moldau completion zsh)"
    fish: moldau completion fish > ~/.config/fish/completions/moldau.fish

    Names are those of the broker of --bootstrap or MOLDAU_BOOTSTRAP; without an answer within a second there are none.
    """
    from click.shell_completion import get_completion_class

    from moldau.cli.application import application

    kind = get_completion_class(shell)
    assert kind is not None
    click.echo(kind(application, {}, "moldau", VARIABLE).source())
