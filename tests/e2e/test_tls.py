"""Starts the server with a certificate of its own making, and talks TLS with it as its clients do."""

from __future__ import annotations

import asyncio
import json
import re
import ssl
import urllib.request
from pathlib import Path

from openai import AsyncOpenAI
from openai import DefaultAsyncHttpxClient as HttpClient
from websockets.asyncio.client import connect

from tests.duplex_server.serving import STAGES, first
from tests.e2e.server import Server, running

KEY = "sk-a-key-of-the-server"


def told(server: Server) -> tuple[str, Path]:
    """The address for HTTPS and the certificate, as they are printed."""
    assert server.process.stdout is not None
    lines = server.process.stdout.readline() + server.process.stdout.readline()
    address, certificate = re.search(r"https://\S+", lines), re.search(r"\S+\.pem", lines)
    assert address is not None, lines
    assert certificate is not None, lines
    return address[0], Path(certificate[0])


def test_check_021_https_beside_plain_http_with_a_certificate_that_is_kept(tmp_path: Path) -> None:
    settings = (
        *STAGES,
        "server.tls_self_signed=true",
        "server.tls_port=0",
        f"server.state_dir={tmp_path / 'state'}",
        f"server.api_keys=[{KEY}]",
    )

    async def talk(url: str, trusting: ssl.SSLContext) -> None:
        ws_url = url.replace("http", "ws", 1)
        async with AsyncOpenAI(api_key=KEY, base_url=f"{url}/v1", http_client=HttpClient(verify=trusting)) as sdk:
            made = await sdk.realtime.client_secrets.create(session={"type": "realtime", "instructions": "Be Ada."})
        protocols = ["realtime", f"openai-insecure-api-key.{made.value}"]
        async with connect(f"{ws_url}/v1/realtime", ssl=trusting, subprotocols=protocols) as browser:  # type: ignore[arg-type]  # plain strings do
            assert browser.subprotocol == "realtime"
            assert (await first(browser))["instructions"] == "Be Ada."
            await browser.send(json.dumps({"type": "response.create", "response": {"output_modalities": ["text"]}}))
            while (event := json.loads(await asyncio.wait_for(browser.recv(), 30)))["type"] != "response.done":
                pass
            assert event["response"]["status"] == "completed"

    with running(*settings) as server:
        url, certificate = told(server)
        kept = certificate.read_bytes()
        trusting = ssl.create_default_context(cafile=str(certificate))
        asyncio.run(talk(url, trusting))
        with urllib.request.urlopen(f"{url}/healthz", timeout=30, context=trusting) as secure:
            assert secure.status == 200
        with urllib.request.urlopen(f"{server.url}/healthz", timeout=30) as plain:
            assert plain.status == 200
        assert KEY not in server.read_log()
        assert "ek_" not in server.read_log()
    with running(*settings) as server:
        assert told(server)[1].read_bytes() == kept
