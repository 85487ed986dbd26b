"""A headless Chromium, driven by W3C WebDriver: what a person does with a page."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def missing() -> str:
    """What of the browser is not installed; "" if all is there."""
    if shutil.which("chromedriver") and (shutil.which("chromium") or shutil.which("google-chrome")):
        return ""
    return "no chromium with chromedriver (Debian: chromium, chromium-driver)"


class Browser:
    """One window."""

    def __init__(self, width: int = 1400, height: int = 1000) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._folder = tempfile.TemporaryDirectory()
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, env=os.environ | {"HOME": self._folder.name},
        )  # fmt: skip
        self._base = f"http://127.0.0.1:{port}"
        arguments = [
            "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            f"--window-size={width},{height}", f"--user-data-dir={self._folder.name}/profile",
        ]  # fmt: skip
        binary = shutil.which("chromium") or shutil.which("google-chrome")
        options = {"args": arguments, "binary": binary}
        wanted = {
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL"},
            "timeouts": {"script": 60_000, "pageLoad": 60_000},
        }
        try:
            self._wait_for_driver()
            made = self._send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        except BaseException:
            self._end()
            raise
        self._base += f"/session/{made['sessionId']}"

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._send("DELETE", "")
        finally:
            self._end()

    def _end(self) -> None:
        self._driver.terminate()
        self._driver.wait(20)
        self._folder.cleanup()

    def _wait_for_driver(self) -> None:
        last = time.monotonic() + 30
        while True:
            try:
                if self._send("GET", "/status")["ready"]:
                    return
            except OSError:
                if time.monotonic() > last:
                    raise
            time.sleep(0.05)

    def _send(self, method: str, path: str, body: Any = None) -> Any:
        data = None if method != "POST" else json.dumps(body or {}).encode()
        request = urllib.request.Request(self._base + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=120) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise AssertionError(json.load(error)["value"]["message"]) from None

    def open(self, path: Path) -> None:
        """Load a file, to the end of its scripts."""
        self._send("POST", "/url", {"url": path.as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """What a script returns."""
        return self._send("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def _find(self, selector: str) -> str:
        found = self._send("POST", "/element", {"using": "css selector", "value": selector})
        return str(found[_ELEMENT])

    def click(self, selector: str) -> None:
        """Click the middle of an element."""
        self._send("POST", f"/element/{self._find(selector)}/click")

    def type(self, selector: str, text: str) -> None:
        """Put text into a field in place of what is there."""
        element = self._find(selector)
        self._send("POST", f"/element/{element}/clear")
        self._send("POST", f"/element/{element}/value", {"text": text})

    def choose(self, selector: str, number: int) -> None:
        """Choose from a list."""
        script = (
            "const e = document.querySelector(arguments[0]); e.selectedIndex = arguments[1];"
            "e.dispatchEvent(new Event('change', {bubbles: true}));"
        )
        self.run(script, selector, number)

    def text(self, selector: str) -> str:
        """What an element says, whether it is in sight or not."""
        return str(self.run("return document.querySelector(arguments[0]).textContent", selector))

    def texts(self, selector: str) -> list[str]:
        """What elements say."""
        script = "return [...document.querySelectorAll(arguments[0])].map(e => e.textContent)"
        return list(self.run(script, selector))

    def wait(self, script: str, seconds: float = 15) -> Any:
        """Wait until a script returns something that is true."""
        last = time.monotonic() + seconds
        while not (found := self.run(script)):
            assert time.monotonic() < last, f"waited in vain for: {script}"
            time.sleep(0.03)
        return found

    def pointer(self, selector: str, x: int, y: int, *, to: tuple[int, int] | None = None,
                press: bool = True) -> None:  # fmt: skip
        """Move to a place in an element, from its upper left corner; press; move on; let go."""
        left, top = self.run(
            "const b = document.querySelector(arguments[0]).getBoundingClientRect();"
            "return [b.left, b.top]", selector,
        )  # fmt: skip

        def move(at: tuple[int, int]) -> dict[str, Any]:
            place = {"x": round(left + at[0]), "y": round(top + at[1])}
            return {"type": "pointerMove", "duration": 60, "origin": "viewport", **place}

        actions = [move((x, y))]
        if press:
            actions.append({"type": "pointerDown", "button": 0})
            actions += [move(to)] if to else []
            actions.append({"type": "pointerUp", "button": 0})
        mouse = {"type": "pointer", "id": "mouse", "actions": actions}
        self._send("POST", "/actions", {"actions": [mouse]})

    def wheel(self, selector: str, x: int, y: int, distance: int) -> None:
        """Turn the wheel over a place in an element."""
        left, top = self.run(
            "const b = document.querySelector(arguments[0]).getBoundingClientRect();"
            "return [b.left, b.top]", selector,
        )  # fmt: skip
        turn = {"type": "scroll", "x": round(left + x), "y": round(top + y), "deltaX": 0,
                "deltaY": distance, "duration": 20, "origin": "viewport"}  # fmt: skip
        self._send(
            "POST", "/actions", {"actions": [{"type": "wheel", "id": "w", "actions": [turn]}]}
        )

    def complaints(self) -> list[str]:
        """What the browser's console had to say since the last call: errors and warnings."""
        found = self._send("POST", "/se/log", {"type": "browser"})
        return [line["message"] for line in found if line["level"] in ("SEVERE", "WARNING")]

    def screenshot(self, path: Path) -> None:
        """A picture of what is in sight."""
        path.write_bytes(base64.b64decode(self._send("GET", "/screenshot")))
