"""``stackhound completion``: what a shell reads to complete our command lines."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from stackhound.cli.examples import ExampleCommand
from stackhound.cli.verbosity import verbose_option
from stackhound.errors import UsageError

EXAMPLES = (
    ("bash, for this user", "stackhound completion bash >> ~/.bashrc"),
    ("zsh, for this user", "stackhound completion zsh >> ~/.zshrc"),
    ("fish, for this user", "stackhound completion fish > ~/.config/fish/completions/stackhound.fish"),
)


@click.command(cls=ExampleCommand, examples=EXAMPLES)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
@verbose_option
def command(context: click.Context, shell: str) -> None:
    """Print the completion script of SHELL."""
    from stackhound.cli.main import COMPLETION_VARIABLE

    completion = get_completion_class(shell)
    if completion is None:
        raise UsageError(f"there is no completion for {shell}", "use bash, zsh or fish")
    root = context.find_root().command
    click.echo(completion(root, {}, "stackhound", COMPLETION_VARIABLE).source())
