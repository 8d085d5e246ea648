"""Drive a headless Chromium by the WebDriver protocol (W3C) of Debian's chromedriver.

The module needs no library in addition to httpx, with which the client of dray calls endpoints.
"""

from __future__ import annotations

import base64
import contextlib
import os
import re
import shutil
import signal
import subprocess
import time
from typing import TYPE_CHECKING, Any

import httpx
import pytest

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from typing_extensions import Self

START_SECONDS = 20.0
#: Maximum seconds until the page shows an effect, on a busy host.
EFFECT_SECONDS = 60.0
POLL_SECONDS = 0.1
#: Maximum number of attempts to start a browser. On a busy host, Chromium may exit immediately.
STARTS = 3
#: Key of an element's reference in the protocol.
ELEMENT = "element-6066-11e4-a52e-4f735466cecf"


def missing() -> str | None:
    """Return the reason why there is no browser on this host, or None."""
    lacking = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"no {' and no '.join(lacking)} on PATH; tools/bootstrap.sh test" if lacking else None


needs_browser = pytest.mark.skipif(missing() is not None, reason=missing() or "")


class Browser:
    """One browser with an empty profile, which chromedriver removes at the end."""

    def __init__(self, folder: Path) -> None:
        """Start chromedriver and a browser.

        :param folder: place for the output of both and for temporary files.
        """
        log = folder / "chromedriver.log"
        with log.open("wb") as out:
            self._popen = subprocess.Popen(
                ["chromedriver", "--port=0"],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, "TMPDIR": str(folder)},
                # The browser has several processes. A group of their own lets `close` end them all.
                start_new_session=True,
            )
        try:
            self._http = httpx.Client(base_url=self._address(log), timeout=60, trust_env=False)
            self._session = self._start()
        except BaseException:
            self._end()
            raise

    def _start(self) -> str:
        """Start a browser and return the id of its session."""
        failed = 0
        while True:
            try:
                return str(self._call("POST", "/session", _capabilities())["sessionId"])
            except AssertionError:
                failed += 1
                if failed == STARTS:
                    raise

    def _address(self, log: Path) -> str:
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            found = re.search(r"started successfully on port (\d+)", log.read_text())
            if found:
                return f"http://127.0.0.1:{found[1]}"
            time.sleep(POLL_SECONDS)
        raise TimeoutError(f"chromedriver did not start:\n{log.read_text()}")

    def _call(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        answer = self._http.request(method, path, json={} if body is None else body)
        value = answer.json()["value"]
        if answer.status_code != 200:
            raise AssertionError(f"{method} {path}: {value['error']}: {value['message']}")
        return value

    def _in_session(self, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        return self._call("POST", f"/session/{self._session}/{path}", body)

    def open(self, url: str) -> None:
        """Open a URL and wait until the page is loaded."""
        self._in_session("url", {"url": url})

    def run(self, script: str, *arguments: object) -> Any:  # noqa: ANN401 - a JavaScript value
        """Return the value of the body of a function in the page."""
        return self._in_session("execute/sync", {"script": script, "args": list(arguments)})

    def wait(self, condition: str, *arguments: object, seconds: float = EFFECT_SECONDS) -> Any:  # noqa: ANN401 - a JavaScript value
        """Wait until a JavaScript expression is true. Return its value.

        :param seconds: maximum time.
        """
        until = time.monotonic() + seconds
        while True:
            value = self.run(f"return ({condition})", *arguments)
            if value:
                return value
            assert time.monotonic() < until, f"not in time: {condition}\n{self.text()}"
            time.sleep(POLL_SECONDS)

    def text(self) -> str:
        """Return the visible text of the page."""
        text: str = self.run("return document.body.innerText")
        return text

    def wait_text(self, wanted: str) -> None:
        """Wait until the visible text of the page contains ``wanted``."""
        self.wait("document.body.innerText.includes(arguments[0])", wanted)

    def element(self, selector: str) -> str:
        """Wait for an element. Return its reference."""
        self.wait("document.querySelector(arguments[0]) !== null", selector)
        found = self._in_session("element", {"using": "css selector", "value": selector})
        reference: str = found[ELEMENT]
        return reference

    def click(self, selector: str) -> None:
        """Click on an element like a user. It must be visible and not covered."""
        self._in_session(f"element/{self.element(selector)}/click")

    def type_text(self, selector: str, text: str) -> None:
        """Type into a field."""
        self._in_session(f"element/{self.element(selector)}/value", {"text": text})

    def press(self, key: str) -> None:
        """Press and release one key, by its code point in the protocol."""
        actions = [{"type": "keyDown", "value": key}, {"type": "keyUp", "value": key}]
        self._in_session("actions", {"actions": [{"type": "key", "id": "k", "actions": actions}]})

    def resize(self, width: int, height: int, *, is_dark: bool = False) -> None:
        """Set the size of the page, and the colours that its user prefers."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._devtools("Emulation.setDeviceMetricsOverride", metrics)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self._devtools("Emulation.setEmulatedMedia", {"features": [scheme]})

    def _devtools(self, command: str, parameters: object) -> None:
        self._in_session("goog/cdp/execute", {"cmd": command, "params": parameters})

    def screenshot(self, path: Path) -> None:
        """Write an image of the page in PNG form."""
        value = self._call("GET", f"/session/{self._session}/screenshot")
        path.write_bytes(base64.b64decode(value))

    def complaints(self) -> list[str]:
        """Return the browser's warnings and errors since the last call of this method."""
        entries = self._in_session("se/log", {"type": "browser"})
        found = [entry["message"] for entry in entries if entry["level"] in ("WARNING", "SEVERE")]
        # Other tests of this host create network interfaces. Each one makes the browser abort its
        # calls, and the page repeats them.
        return [each for each in found if "ERR_NETWORK_CHANGED" not in each]

    def close(self) -> None:
        """End the browser and chromedriver."""
        try:
            self._call("DELETE", f"/session/{self._session}")
        finally:
            self._http.close()
            self._end()

    def _end(self) -> None:
        # The group still exists if a process of the browser has not ended by itself.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._popen.pid, signal.SIGKILL)
        self._popen.wait()

    def __enter__(self) -> Self:
        """Return this browser."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close the browser."""
        self.close()


def _capabilities() -> dict[str, Any]:
    arguments = ["--headless=new", "--disable-gpu", "--disable-dev-shm-usage", "--lang=en"]
    if os.getuid() == 0:
        # Chromium refuses to run its sandbox as root.
        arguments.append("--no-sandbox")
    wanted = {
        "browserName": "chrome",
        # The endpoint of a test has a certificate of its own key.
        "acceptInsecureCerts": True,
        "goog:chromeOptions": {"binary": shutil.which("chromium"), "args": arguments},
        "goog:loggingPrefs": {"browser": "ALL"},
    }
    return {"capabilities": {"alwaysMatch": wanted}}
