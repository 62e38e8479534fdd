"""A headless Chromium that a test drives: clicks, keys and console messages, over a pipe with the browser's protocol."""

import base64
import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Self

from tests.support.browser import CHECKS, browser

KEYS = {"Tab": 9, "Enter": 13, "Escape": 27, "Space": 32}
OPTIONS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--remote-debugging-pipe",
    "--hide-scrollbars",
)
CENTRE = """(() => {
  const element = document.querySelector(SELECTOR);
  element.scrollIntoView({block: "center", inline: "center", behavior: "instant"});
  const box = element.getBoundingClientRect();
  return [box.x + box.width / 2, box.y + box.height / 2];
})()"""


class DrivenBrowser:
    """One page of a browser.

    Attributes
    ----------
    complaints
        Errors and warnings of the console, and requests to the network.
    """

    def __init__(self, reading: BinaryIO, writing: BinaryIO) -> None:
        self._out, self._in = reading, writing
        self._number = 0
        self._session: str | None = None
        self.complaints: list[str] = []
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self._call(f"{domain}.enable")

    def open(self, path: Path, width: int, height: int = 900, theme: str = "light") -> Self:
        """Open a file in a window of a given size, with the light or dark colour scheme preferred."""
        self._call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": theme}])
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 600
        )
        self.complaints.clear()
        self._call("Page.navigate", url=path.as_uri())
        self.evaluate(
            "new Promise((done) => document.readyState === 'complete' ? done() : addEventListener('load', done))"
        )
        return self

    def evaluate(self, script: str) -> Any:
        """Return the result of a script, after waiting for it if it is a promise."""
        found = self._call("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in found, found["exceptionDetails"]
        return found["result"].get("value")

    def violations(self) -> list[str]:
        """Return the faults of the current page: names, contrast, keyboard, width."""
        found: list[str] = self.evaluate(f"{CHECKS.read_text()}; violationsOf(window)")
        return found

    def click(self, selector: str) -> None:
        """Click in the middle of an element."""
        x, y = self.evaluate(CENTRE.replace("SELECTOR", json.dumps(selector)))
        for kind in ("mousePressed", "mouseReleased"):
            self._call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=1)
        self._settle()

    def key(self, name: str) -> None:
        """Press a key."""
        text = {"Enter": "\r", "Space": " "}.get(name, "")
        code = {"Space": " "}.get(name, name)
        for kind in ("keyDown", "keyUp"):
            self._call(
                "Input.dispatchKeyEvent", type=kind, key=code, code=name, text=text if kind == "keyDown" else "",
                windowsVirtualKeyCode=KEYS[name],
            )  # fmt: skip
        self._settle()

    def type(self, text: str) -> None:
        """Type into the focused element."""
        self._call("Input.insertText", text=text)
        self._settle()

    def screenshot(self, path: Path) -> bytes:
        """Write a screenshot to a PNG, and return it."""
        data = base64.b64decode(self._call("Page.captureScreenshot", format="png")["data"])
        path.write_bytes(data)
        return data

    def _settle(self) -> None:
        self.evaluate("new Promise((done) => setTimeout(done, 10))")

    def _call(self, method: str, **given: Any) -> dict[str, Any]:
        self._number += 1
        message = {"id": self._number, "method": method, "params": given}
        if self._session is not None:
            message["sessionId"] = self._session
        self._in.write(json.dumps(message).encode() + b"\0")
        while True:
            answer = json.loads(self._message())
            if answer.get("id") == self._number:
                assert "error" not in answer, f"{method}: {answer['error']}"
                return dict(answer["result"])
            self._note(answer)

    def _message(self) -> bytes:
        read = bytearray()
        while (byte := self._out.read(1)) != b"\0":
            assert byte, "the browser ended"
            read += byte
        return bytes(read)

    def _note(self, event: dict[str, Any]) -> None:
        given = event.get("params", {})
        match event.get("method"):
            case "Runtime.consoleAPICalled" if given["type"] in ("error", "warning", "assert"):
                self.complaints.append(f"console: {given['args']}")
            case "Runtime.exceptionThrown":
                self.complaints.append(f"script: {given['exceptionDetails']}")
            case "Log.entryAdded" if given["entry"]["level"] in ("error", "warning"):
                self.complaints.append(f"log: {given['entry']['text']}")
            case "Network.requestWillBeSent" if not given["request"]["url"].startswith(("file:", "data:", "about:")):
                self.complaints.append(f"network: {given['request']['url']}")


@contextmanager
def driven_browser(home: Path) -> Iterator[DrivenBrowser]:
    """Start a browser with its files in `home`; without a browser the test is skipped."""
    program = browser()
    theirs, to_browser = os.pipe()
    from_browser, answers = os.pipe()
    command = [program, *OPTIONS, f"--user-data-dir={home}"]
    # The protocol's pipe is descriptors 3 and 4, which the shell lays there.
    running = subprocess.Popen(
        ["bash", "-c", f'exec "$@" 3<&{theirs} 4>&{answers}', "browser", *command],
        pass_fds=(theirs, answers), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs)
    os.close(answers)
    with os.fdopen(from_browser, "rb") as reading, os.fdopen(to_browser, "wb", buffering=0) as writing:
        try:
            yield DrivenBrowser(reading, writing)
        finally:
            running.terminate()
            running.wait(timeout=60)
