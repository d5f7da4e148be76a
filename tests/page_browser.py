"""The browser that tests of the page drive, and the widths of its windows.

Debian's `chromium` and `chromium-driver`, driven by selenium. Without them the tests are skipped, unless
SSLKIT_BROWSER=1 demands them.
"""

import importlib.util
import shutil

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PHONE, DESK = 375, 1280


def missing() -> str:
    """The missing programs and packages, in words; "" if all are installed."""
    parts = []
    if not any(map(shutil.which, BROWSERS)):
        parts.append("no chromium (apt-get install chromium)")
    if not shutil.which("chromedriver"):
        parts.append("no chromedriver (apt-get install chromium-driver)")
    if importlib.util.find_spec("selenium") is None:
        parts.append('no selenium (pip install -e ".[test]")')
    return ", ".join(parts)
