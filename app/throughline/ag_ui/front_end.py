"""AG-UI as a front end: its one route."""

from throughline.ag_ui import routes
from throughline.http.app import FrontEnd

AG_UI = FrontEnd(
    "AG-UI's clients call `POST /ag-ui/{agent}`, whose events AG-UI describes.",
    (routes.router,),
    lambda _app, _config: None,
)
