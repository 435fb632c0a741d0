"""The command `throughline users erase`. It uses the database directly, as those for keys do."""

from pathlib import Path

import click

from throughline.cli.connection import asynchronous, data_dir_option
from throughline.cli.dependencies import CliDependencies, LocalOptions
from throughline.cli.printable import printable
from throughline.cli.screen import Screen

users = click.Group("users", help="Erase users in the database that this machine is configured for.")


@users.command("erase")
@click.argument("name", metavar="NAME")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@data_dir_option
@click.pass_obj
@asynchronous
async def erase(dependencies: CliDependencies, name: str, *, yes: bool, data_dir: Path | None) -> None:
    """Erase a user with all sessions, memories, keys and links to people in Slack, and print what went."""
    if not yes:
        click.confirm(f"Erase the user {printable(name)} and everything of them? It cannot be undone", abort=True)
    erased = await dependencies.erase_user(LocalOptions(data_dir), name)
    screen = Screen()
    costs = "stay without the user" if erased.keeps_costs else "are deleted"
    screen.say(f"user {printable(erased.name)} is erased:")
    screen.say(f"  sessions: {erased.sessions} (messages: {erased.messages}, turns: {erased.runs})")
    screen.say(f"  memories: {erased.memories}, keys: {erased.keys}, access tokens: {erased.access_tokens}")
    screen.say(f"  links to people in Slack: {erased.slack_people}")
    screen.say(f"  records of costs: {erased.model_calls}, which {costs}")
    for session_id in erased.shared_sessions:
        screen.note(f"what they wrote in session {session_id} of another owner stays: redact it there")
