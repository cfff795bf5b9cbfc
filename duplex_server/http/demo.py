"""Serves the page at `/demo` from the package `web_demo`."""

from __future__ import annotations

from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Route

import web_demo

FOLDER = Path(web_demo.__file__).parent
# Told here, since the system's own table of types may be missing or wrong, and browsers run no module of another type.
TYPES = {
    ".html": "text/html",
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}
PAGE = "index.html"
HEADERS = {
    # The page needs nothing but its own files and its own server.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "Permissions-Policy": "microphone=(self), camera=(), geolocation=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Cache-Control": "no-cache",  # a newer server's page must not run with an older one's modules
}


def routes() -> list[Route]:
    """`/demo/` and the files it is made of, by name; `/` and `/demo` lead there."""
    files = {path.name: path for path in FOLDER.iterdir() if path.suffix in TYPES}

    async def show(request: Request) -> Response:
        file = files.get(request.path_params.get("name", PAGE))
        if file is None:
            raise HTTPException(404)
        return FileResponse(file, media_type=TYPES[file.suffix], headers=HEADERS)

    # Relative, so that they hold behind a proxy that puts the server under a path of its own.
    async def from_root(_: Request) -> Response:
        return RedirectResponse("demo/")

    return [
        Route("/", from_root),
        Route("/demo", from_root),
        Route("/demo/", show),
        Route("/demo/{name}", show),
    ]
