"""The page `/docs`: Swagger UI, for reading and trying out the API.

All of its files are served by this service; nothing is loaded from elsewhere.
"""

from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Final

from fastapi import APIRouter, Response
from starlette.responses import FileResponse, HTMLResponse

ASSETS: Final = "fastapi_offline"
"""Package that contains Swagger UI's files; nothing else of the package is used."""

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


@router.head("", include_in_schema=False)
@router.get("")
async def page() -> Response:
    """Return the Swagger UI page. Its links are relative, so that it also works behind a proxy that adds a prefix."""
    return HTMLResponse(PAGE, headers=HEADERS)


@router.head("/start.js", include_in_schema=False)
@router.get("/start.js")
async def start() -> Response:
    """Return the script that starts Swagger UI. The page's security policy forbids inline scripts."""
    return Response(START, media_type="text/javascript", headers=HEADERS)


@router.head("/swagger-ui-bundle.js", include_in_schema=False)
@router.get("/swagger-ui-bundle.js")
async def script() -> Response:
    """Return Swagger UI's script."""
    return FileResponse(_assets() / "swagger-ui-bundle.js", media_type="text/javascript", headers=KEPT)


@router.head("/swagger-ui.css", include_in_schema=False)
@router.get("/swagger-ui.css")
async def style() -> Response:
    """Return Swagger UI's style sheet."""
    return FileResponse(_assets() / "swagger-ui.css", media_type="text/css", headers=KEPT)


@cache
def _assets() -> Path:
    return Path(str(files(ASSETS) / "static"))
