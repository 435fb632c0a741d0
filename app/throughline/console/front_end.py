"""The console as a front end: its pages and their files."""

from typing import cast

from throughline.console import chat, context, costs, operate, search, sessions, sign_in, summaries
from throughline.console.page import files_router, missing_router
from throughline.console.settings import ConsoleSettings
from throughline.http.app import FrontEnd
from throughline.http.call import PAGES

CONSOLE = FrontEnd(
    "People open `/` in a browser.",
    (
        files_router,
        sign_in.router,
        sessions.router,
        search.router,
        chat.router,
        context.router,
        summaries.router,
        costs.router,
        operate.router,
        missing_router,
    ),
    lambda _app, _config: None,
    home=f"{PAGES}/sessions",
    is_on=lambda settings: cast("ConsoleSettings", settings).console,
)
