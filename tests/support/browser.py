"""Pages in a real headless browser, checked by a script. Without Chromium, tests are skipped with a message."""

import html
import json
import re
import shutil
import subprocess
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote

import pytest

CHECKS = Path(__file__).with_name("browser_checks.js")
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
LIMIT_S = 240

LOOK = """<!doctype html><title>look</title><iframe id="frame" title="page" width="WIDTH" height="900"></iframe>
<pre id="result"></pre>
<script src="/_checks.js"></script>
<script>
const frame = document.getElementById("frame"), found = {};
const wait = (ms) => new Promise((done) => setTimeout(done, ms));
const errors = [];
async function look() {
  for (const page of PAGES) {
    const loaded = new Promise((done) => { frame.onload = done; });
    localStorage.setItem("theme", THEME); localStorage.setItem("mode", THEME);
    frame.src = page;
    await loaded; await wait(400);
    frame.contentWindow.addEventListener("error", (event) => errors.push(`script: ${event.message}`));
    found[page] = violationsOf(frame.contentWindow).concat(errors.splice(0));
  }
}
look().catch((error) => { found.failed = [String(error)]; }).finally(() => {
  document.getElementById("result").textContent = JSON.stringify(found);
});
</script>"""


def browser() -> str:
    """Return the browser's path, or skip the test."""
    for name in NAMES:
        path = shutil.which(name)
        if path:
            return path
    pytest.skip("no Chromium here: install chromium to look at pages")


class _Pages(SimpleHTTPRequestHandler):
    """Serves the files of a folder, and the page that opens and checks them."""

    look = ""

    def do_GET(self) -> None:
        """Respond with a file, the script of the checks, or the checking page."""
        name = unquote(self.path.split("?")[0])
        body = {"/_look.html": self.look, "/_checks.js": CHECKS.read_text()}.get(name)
        if body is None:
            super().do_GET()
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/javascript" if name.endswith("js") else "text/html; charset=utf-8")
        self.end_headers()
        self.wfile.write(body.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Log no messages."""


@contextmanager
def _served(folder: Path, look: str) -> Iterator[str]:
    handler = type("Handler", (_Pages,), {"look": look})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()


def opened(address: str, home: Path, *, width: int = 1280) -> str:
    """Return the HTML of a page once its scripts have run; `home` is for the browser's own files."""
    done = subprocess.run(
        [
            browser(), "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
            f"--user-data-dir={home}", f"--window-size={width},1000", "--virtual-time-budget=100000", "--dump-dom", address,
        ],
        check=True, capture_output=True, text=True, timeout=LIMIT_S,
    )  # fmt: skip
    return done.stdout


def violations(
    folder: Path, pages: Sequence[str], home: Path, *, width: int = 1280, theme: str = "light"
) -> dict[str, list[str]]:
    """Open pages one after the other in a window of a given width; return the faults of each.

    Parameters
    ----------
    folder, pages
        Where the pages are, and their paths in it.
    home
        A folder for the browser's own files.
    """
    words = {"WIDTH": str(width), "PAGES": json.dumps([f"/{page}" for page in pages]), "THEME": json.dumps(theme)}
    look = re.sub("|".join(words), lambda name: words[name[0]], LOOK)
    with _served(folder, look) as address:
        page = opened(f"{address}/_look.html", home, width=width + 60)
    found = re.search(r'<pre id="result">(.+?)</pre>', page, re.S)
    assert found, "the browser gave no answer"
    told: dict[str, list[str]] = json.loads(html.unescape(found[1]))
    return told
