"""The frame of the pages that the service makes itself: HTML without scripts, styles or files from elsewhere."""

MEDIA_TYPE = "text/html"
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
</head>
<body>
{body}
</body>
</html>
"""
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Vary": "Accept",
}
"""Headers of a route that answers with a page or with JSON."""


def html_page(title: str, body: str) -> str:
    """Return a whole page. Both arguments are HTML: texts from elsewhere have to be escaped."""
    return PAGE.format(title=title, body=body)
