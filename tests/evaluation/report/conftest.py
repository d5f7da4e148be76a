"""The page of a small zoo, and a browser that shows it."""

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from page_browser import BROWSERS, DESK, PHONE, missing
from report_zoo import make_zoo, write_study

from evaluation.report import write_report


@pytest.fixture(scope="package")
def driver() -> Iterator[Any]:
    lacking = missing()
    if lacking and os.environ.get("SSLKIT_BROWSER") != "1":
        pytest.skip(lacking)
    assert not lacking, lacking
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = next(filter(None, map(shutil.which, BROWSERS)))
    for word in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(word)
    options.set_capability("goog:loggingPrefs", {"performance": "ALL", "browser": "ALL"})
    browser = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    yield browser
    browser.quit()


@pytest.fixture(scope="package")
def page(tmp_path_factory) -> Path:
    root = tmp_path_factory.mktemp("report")
    zoo, study = make_zoo(root), write_study(root / "study.json")
    path, _ = write_report(zoo, root / "report.html", rankings=root / "ranking", evaluation=root, study=study)
    return path


@pytest.fixture
def show(driver: Any, page: Path) -> Callable[..., Any]:
    """show(width, scheme) opens the page anew, as someone sees it who never chose a theme."""

    def opened(width: int = DESK, scheme: str = "light") -> Any:
        metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": width == PHONE}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
        media = {"features": [{"name": "prefers-color-scheme", "value": scheme}]}
        driver.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
        driver.get(page.as_uri())
        driver.execute_script("localStorage.clear()")
        driver.get_log("browser"), driver.get_log("performance")
        driver.get(page.as_uri())
        return driver

    return opened
