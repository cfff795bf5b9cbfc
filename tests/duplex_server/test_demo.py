"""Fetches the page at `/demo` as a browser does, and holds its files to what they promise."""

from __future__ import annotations

import asyncio
import fnmatch
import re
import tomllib
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from duplex_server.http import demo

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = ROOT / "web_demo"
FILES = sorted(path for path in PAGE.iterdir() if path.is_file() and path.suffix != ".py")
IMPORTS = re.compile(r"""(?:from\s+|import\s+|new URL\()["']([\w-]+\.js|\./[\w-]+\.js)["']""")
LINKS = re.compile(r"""(?:src|href)="([^"]+)\"""")
XML_NAMES = ("http://www.w3.org/2000/svg",)  # names, which nothing fetches
TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}


def get(path: str) -> httpx.Response:
    async def fetch() -> httpx.Response:
        transport = httpx.ASGITransport(Starlette(routes=demo.routes()))
        async with httpx.AsyncClient(transport=transport, base_url="http://server") as client:
            return await client.get(path, follow_redirects=True)

    return asyncio.run(fetch())


@pytest.mark.parametrize("path", ["/", "/demo", "/demo/"])
def test_the_page_is_found(path: str) -> None:
    answer = get(path)
    assert answer.status_code == 200
    assert answer.url.path == "/demo/", "or the page's own links would lead elsewhere"
    assert answer.text == (PAGE / "index.html").read_text()


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_each_file_is_served_with_its_type_and_a_strict_policy(file: Path) -> None:
    answer = get(f"/demo/{file.name}")
    assert answer.content == file.read_bytes()
    assert answer.headers["content-type"] == TYPES[file.suffix]
    assert answer.headers["x-content-type-options"] == "nosniff"
    policy = dict(part.strip().split(" ", 1) for part in answer.headers["content-security-policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert set(policy.values()) == {"'none'", "'self'"}


@pytest.mark.parametrize(
    "path",
    [
        "/demo/__init__.py",
        "/demo/__pycache__",
        "/demo/__pycache__/",
        "/demo/missing.js",
        "/demo/..%2Fpyproject.toml",
        "/demo/%2e%2e/pyproject.toml",
        "/demo/sub/index.html",
    ],
)
def test_nothing_else_is_served(path: str) -> None:
    assert get(path).status_code == 404


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_a_file_needs_only_files_that_are_there(file: Path) -> None:
    text = file.read_text()
    for name in XML_NAMES:
        text = text.replace(name, "")
    needed = IMPORTS.findall(text) if file.suffix == ".js" else LINKS.findall(text)
    assert not [name for name in needed if not (PAGE / name).is_file()]
    assert not re.search(r"(?:https?:|wss?:)?//[\w-]+\.[\w-]", text), "it must work without another server"
    if file.suffix == ".html":
        assert needed
        assert not re.search(r"\sstyle=|\son\w+=|<style|<script>", text), "the policy forbids what is written inline"


def test_every_module_is_reached_from_the_page() -> None:
    reached, ahead = set(), {"app.js"}
    while ahead:
        name = ahead.pop()
        reached.add(name)
        ahead |= {found.removeprefix("./") for found in IMPORTS.findall((PAGE / name).read_text())} - reached
    assert reached == {file.name for file in FILES if file.suffix == ".js"}


def test_every_file_goes_into_the_package() -> None:
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["web_demo"]
    left_out = [file.name for file in FILES if not any(fnmatch.fnmatch(file.name, pattern) for pattern in patterns)]
    assert not left_out
