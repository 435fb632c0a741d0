"""The page `/docs`, by which the API can be read and tried. All of it comes from the service, nothing from outside."""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Response
from starlette.responses import FileResponse, HTMLResponse

ASSETS: Final = "fastapi_offline"
"""The package that holds Swagger UI's files; nothing else of it is used."""

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Throughline</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="docs/swagger-ui.css">
</head>
<body>
<div id="page"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
START = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#page",
  deepLinking: true,
  validatorUrl: null,
  presets: [SwaggerUIBundle.presets.apis],
});
"""
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
}
KEPT = {**HEADERS, "Cache-Control": "max-age=86400"}
router = APIRouter(prefix="/docs", include_in_schema=False)


@router.get("")
async def page() -> Response:
    """Return the page. Its links are relative, so that it also works behind a proxy that adds a prefix."""
    return HTMLResponse(PAGE, headers=HEADERS)


@router.get("/start.js")
async def start() -> Response:
    """Return what starts the page: inside it, no script would be allowed to run."""
    return Response(START, media_type="text/javascript", headers=HEADERS)


@router.get("/swagger-ui-bundle.js")
async def script() -> Response:
    """Return Swagger UI."""
    return FileResponse(_assets() / "swagger-ui-bundle.js", media_type="text/javascript", headers=KEPT)


@router.get("/swagger-ui.css")
async def style() -> Response:
    """Return its style sheet."""
    return FileResponse(_assets() / "swagger-ui.css", media_type="text/css", headers=KEPT)


@cache
def _assets() -> Path:
    return Path(str(files(ASSETS) / "static"))
