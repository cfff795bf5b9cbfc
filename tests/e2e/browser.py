"""Drives a headless Chromium over the DevTools protocol, with a sound file for its microphone."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest
from websockets.sync.client import ClientConnection, connect

Json = dict[str, Any]  # the protocol's own messages
PATIENCE_S = 60.0
STOP_S = 30.0
ELSEWHERE = "another-machine.test"
"""A name of this machine that the browser does not know to be this machine."""
_LISTENING = re.compile(r"DevTools listening on (ws://\S+)")
_FLAGS = (
    "--headless",
    "--no-sandbox",  # a container's root can't have one; only our own page is shown
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-port=0",
    "--use-fake-device-for-media-stream",
    f"--host-resolver-rules=MAP {ELSEWHERE} 127.0.0.1",
)


def executable() -> str:
    """The browser's path. Skips the test where there is none, but on CI, which has to bring it."""
    found = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if found is None:
        assert not os.environ.get("CI"), "CI has no Chromium; .ci/run installs it"
        pytest.skip("needs Chromium")
    return found


@dataclass(slots=True)
class Page:
    """One tab. `complaints` are the page's uncaught errors, and what it wrote to the console as an error."""

    socket: ClientConnection
    session: str
    complaints: list[str] = field(default_factory=list)
    _calls: int = 0

    def call(self, method: str, **params: object) -> Json:
        """One command of the protocol; gives its result."""
        self._calls += 1
        number = self._calls
        self.socket.send(json.dumps({"id": number, "sessionId": self.session, "method": method, "params": params}))
        while True:
            message: Json = json.loads(self.socket.recv(PATIENCE_S))
            if message.get("id") == number and message.get("sessionId") == self.session:
                assert "error" not in message, (method, message["error"])
                result: Json = message["result"]
                return result
            self._note(message)

    def _note(self, message: Json) -> None:
        params = message.get("params", {})
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.complaints.append(json.dumps(params["exceptionDetails"]))
            case "Log.entryAdded" if params["entry"]["level"] == "error":
                self.complaints.append(json.dumps(params["entry"]))

    def open(self, url: str, first: str = "") -> None:
        """Show a page and wait until its modules have run; the script `first` runs before them."""
        self.call("Page.enable")
        self.call("Runtime.enable")
        self.call("Log.enable")
        self.call("Page.addScriptToEvaluateOnNewDocument", source=first)
        self.call("Page.navigate", url=url)
        self.until("document.readyState === 'complete' && 'duplexDemo' in window")

    def value(self, expression: str) -> object:
        """The value of an expression, or of the promise it gives."""
        answer = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def state(self) -> Json:
        """What the page shows of itself."""
        return msgspec.convert(self.value("window.duplexDemo.state"), Json)

    def until(self, condition: str) -> None:
        """Wait in the page until a condition holds; `state` in it is the page's own."""
        deadline = time.monotonic() + PATIENCE_S
        looks = (
            "new Promise((done) => { const state = window.duplexDemo?.state; "
            f"({condition}) ? done(true) : setTimeout(() => done(false), 20); }})"
        )
        while not self.value(looks):
            assert time.monotonic() < deadline, (condition, self.value("window.duplexDemo?.state"), self.complaints)

    def press(self, key: str, code: str, text: str = "") -> None:
        """A key, as from a keyboard."""
        self.call("Input.dispatchKeyEvent", type="keyDown", key=key, code=code, text=text)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key, code=code)

    def click(self, selector: str) -> None:
        """A click into the middle of an element."""
        box = msgspec.convert(
            self.value(f"document.querySelector({selector!r}).getBoundingClientRect().toJSON()"), dict[str, float]
        )
        at = {"x": box["x"] + box["width"] / 2, "y": box["y"] + box["height"] / 2}
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, button="left", clickCount=1, **at)

    def write(self, selector: str, text: str) -> None:
        """Type into a field and send it."""
        self.click(selector)
        self.call("Input.insertText", text=text)
        self.press("Enter", "Enter", "\r")

    def picture(self, file: Path, width: int, height: int, scheme: str) -> None:
        """A screenshot at a size, light or dark."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=2, mobile=False)
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot")["data"]))


@contextlib.contextmanager
def browser(microphone: Path | None) -> Iterator[Page]:
    """A tab of a browser of its own. The microphone's WAV starts when the page opens it, and is heard once.

    Without a file the browser asks for permission, and there is nobody to give it: it is refused.
    """
    flags = [*_FLAGS]
    if microphone is not None:
        flags += ["--use-fake-ui-for-media-stream", f"--use-file-for-fake-audio-capture={microphone}%noloop"]
    else:
        flags += ["--deny-permission-prompts"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        process = subprocess.Popen(
            [executable(), *flags, f"--user-data-dir={profile}"], stderr=subprocess.PIPE, text=True, errors="replace"
        )
        try:
            with connect(_address(process), max_size=None, compression=None) as socket:
                root = Page(socket, "")
                target = _bare(socket, "Target.createTarget", url="about:blank")["targetId"]
                root.session = _bare(socket, "Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
                yield root
                _bare(socket, "Browser.close")
            process.wait(STOP_S)
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            assert process.stderr is not None
            process.stderr.close()


def _bare(socket: ClientConnection, method: str, **params: object) -> Json:
    """A command to the browser itself."""
    socket.send(json.dumps({"id": 0, "method": method, "params": params}))
    while True:
        message: Json = json.loads(socket.recv(PATIENCE_S))
        if message.get("id") == 0:
            result: Json = message["result"]
            return result


def _address(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    told = ""
    for line in process.stderr:
        told += line
        if found := _LISTENING.search(line):
            return found[1]
    raise AssertionError(f"the browser ended before it could be driven:\n{told}")
