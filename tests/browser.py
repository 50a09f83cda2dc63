"""Opening a page in headless Chromium and asking it questions."""

import html
import json
import shutil
import subprocess

import pytest

PROBE = """<script>
window.problems = [];
window.addEventListener("error", e => window.problems.push(e.message));
console.error = text => window.problems.push(String(text));
addEventListener("load", () => {
  const sideways = document.documentElement.scrollWidth > document.documentElement.clientWidth;
  const answers = (() => { %s })();
  const out = document.createElement("pre");
  out.id = "probe";
  out.textContent = JSON.stringify({ problems: window.problems, sideways, ...answers });
  document.body.append(out);
});
</script></head>"""


def ask(text, question, folder, width):
    """Open a page in a window of a width, and return what the question, a script, returns."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("Chromium is not installed (Debian: apt install chromium)")
    page = folder / "page.html"
    page.write_text(text.replace("</head>", PROBE % question))
    out = subprocess.run(
        [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
         "--no-first-run", "--disable-background-networking", "--disable-component-update",
         "--disable-sync", f"--user-data-dir={folder / 'profile'}", f"--window-size={width},900",
         "--virtual-time-budget=3000", "--dump-dom", page.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    ).stdout  # fmt: skip
    seen = json.loads(html.unescape(out.split('<pre id="probe">')[1].split("</pre>")[0]))
    assert seen["problems"] == [], seen["problems"]
    assert not seen["sideways"]
    return seen
