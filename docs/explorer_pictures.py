"""Draw the pictures of the explorer in docs/images, from docs/_static/explorer.html."""

import shutil
import subprocess
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
DARK = ["--blink-settings=preferredColorScheme=0"]
PICTURES = {
    "wide": (1280, 1060, []),
    "dark": (1280, 1060, DARK),
    "narrow": (500, 1320, []),
}


def main() -> None:
    """Open the page in windows of several sizes."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        raise SystemExit("Chromium is not installed (Debian: apt install chromium)")
    page = HERE / "_static" / "explorer.html"
    for name, (width, height, more) in PICTURES.items():
        out = HERE / "images" / f"explore-{name}.png"
        with tempfile.TemporaryDirectory() as profile:
            subprocess.run(
                [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
                 "--hide-scrollbars", "--disable-background-networking", *more,
                 f"--user-data-dir={profile}", f"--window-size={width},{height}",
                 "--virtual-time-budget=3000", f"--screenshot={out}", page.as_uri()],
                check=True, capture_output=True, timeout=120,
            )  # fmt: skip
        print(out)


if __name__ == "__main__":
    main()
