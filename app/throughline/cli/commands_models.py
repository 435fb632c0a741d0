"""The command `throughline models check`, which calls an agent's model once.

It uses the settings and keys of this machine and needs neither a service nor a database.
"""

import click

from throughline.cli.connection import asynchronous
from throughline.cli.dependencies import CliDependencies
from throughline.cli.failures import ModelCheckFailed
from throughline.cli.model_check_view import draw_check, remarks
from throughline.cli.screen import Screen

models = click.Group("models", help="Check the models of agents.")


@models.command("check")
@click.argument("agent")
@click.pass_obj
@asynchronous
async def check(dependencies: CliDependencies, agent: str) -> None:
    """Call the model of AGENT once, with a short prompt and a tool without effect, and print what that shows.

    Shown are window, token counting, streaming, tools, usage and cache. It uses the settings of this machine. The exit
    code is 1 if the model cannot be used, or if it refuses tools and the agent has some.
    """
    screen, found = Screen(), await dependencies.check_model(agent)
    screen.draw(draw_check(found))
    for remark in remarks(found):
        screen.warn(remark)
    if found.failure:
        raise ModelCheckFailed(found.failure)
    if found.lacks_tools:
        raise ModelCheckFailed(
            f"The agent {agent} has tools, and its model takes none. Set up the server for tool calls, choose another "
            "model, or remove `tools` from the agent file."
        )
