"""The page in a real headless browser: no error, no request, sorting, theme, a phone's width, contrast, tooltips.

Debian's `chromium` and `chromium-driver`, driven by selenium. Without them the tests are skipped, unless
SSLKIT_BROWSER=1 demands them.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from page_browser import DESK, PHONE
from report_zoo import HOSTILE

# [text, ratio] of every text whose contrast with what lies behind it is below the limit.
CONTRAST = """
const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
function channels(colour) {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  return [...canvas.getImageData(0, 0, 1, 1).data];
}
function luminance([r, g, b]) {
  const [x, y, z] = [r, g, b].map((c) => c / 255).map((c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4));
  return 0.2126 * x + 0.7152 * y + 0.0722 * z;
}
function behind(element) {
  for (let e = element; e; e = e.parentElement) {
    const colour = channels(getComputedStyle(e).backgroundColor);
    if (colour[3] === 255) return colour;
    if (colour[3] !== 0) throw new Error("a background that is half transparent: " + e.outerHTML.slice(0, 80));
  }
  return channels(getComputedStyle(document.documentElement).colorScheme === "dark" ? "black" : "white");
}
const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
const low = []; let seen = 0;
while (walker.nextNode()) {
  const element = walker.currentNode.parentElement;
  if (!walker.currentNode.textContent.trim() || element.closest("script, title, [hidden]")) continue;
  const style = getComputedStyle(element);
  const front = luminance(channels(element.closest("svg") ? style.fill : style.color));
  const back = luminance(behind(element));
  const ratio = (Math.max(front, back) + 0.05) / (Math.min(front, back) + 0.05);
  seen += 1;
  if (ratio < arguments[0]) low.push([walker.currentNode.textContent.trim().slice(0, 40), ratio]);
}
return [seen, low];
"""
# Elements that stick out of the window at the right, those inside a box that scrolls aside.
STICKING_OUT = """
const width = document.documentElement.clientWidth;
const scrolled = (e) => e.closest(".scroll, pre, .paths, .cards") && !e.matches(".scroll, pre, .paths, .cards");
return [...document.body.querySelectorAll("*")]
  .filter((e) => !scrolled(e) && !e.closest("svg, .skip, .aside") && e.getBoundingClientRect().right > width + 0.5)
  .map((e) => e.outerHTML.slice(0, 100));
"""


def requested(driver: Any) -> set[str]:
    """Addresses that were asked for since the log was read last; what is inside the page itself aside."""
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    sent = [one["params"]["request"]["url"] for one in messages if one["method"] == "Network.requestWillBeSent"]
    return {url for url in sent if not url.startswith("data:")}


def column(driver: Any, table: str, place: int) -> list[str]:
    rows = "[...document.querySelectorAll(`#${arguments[0]} tbody tr`)]"
    return driver.execute_script(f"return {rows}.map(row => row.cells[arguments[1]].innerText)", table, place)


def header(driver: Any, table: str, name: str) -> Any:
    return driver.find_element("xpath", f"//table[@id='{table}']//th[button[normalize-space()='{name}']]")


def test_it_opens_without_an_error_and_asks_for_nothing_else(show, page: Path) -> None:
    driver = show()
    assert driver.title == "Zoo report: zoo"
    assert driver.get_log("browser") == []
    assert requested(driver) == {page.as_uri()}
    assert driver.execute_script("return document.compatMode") == "CSS1Compat"
    broken = "return [...document.images].filter(image => !image.complete || !image.naturalWidth).length"
    assert driver.execute_script(broken) == 0


def test_these_logs_would_have_shown_an_error_and_a_request(show, tmp_path: Path) -> None:
    driver = show()
    (tmp_path / "bad.html").write_text("<script>throw new Error('seen')</script><img src=beside.png>")
    driver.get((tmp_path / "bad.html").as_uri())
    assert "seen" in str(driver.get_log("browser"))
    assert any(url.endswith("beside.png") for url in requested(driver))


def test_what_would_load_something_is_refused_by_the_page(show) -> None:
    driver = show()
    add = "const i = new Image(); i.src = 'https://example.invalid/a.png'; document.body.append(i);"
    driver.execute_script(add + "document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=window.hit=1>')")
    driver.implicitly_wait(0)
    assert "Content Security Policy" in str(driver.get_log("browser"))
    assert driver.execute_script("return window.hit") is None


def test_a_click_sorts_and_a_second_one_turns_it_round(show) -> None:
    driver = show()

    def place(name: str) -> int:
        return int(header(driver, "zoo-table", name).get_property("cellIndex"))

    name = header(driver, "zoo-table", "quick 10-NN")
    assert name.get_attribute("aria-sort") == "none"
    name.find_element("tag name", "button").click()
    assert name.get_attribute("aria-sort") == "descending"
    quick = place("quick 10-NN")
    found = column(driver, "zoo-table", quick)
    assert [text[:4] for text in found] == ["91.2", "70.4", "55.0"]
    assert column(driver, "zoo-table", 0)[2].replace("\n", " ") == HOSTILE
    name.find_element("tag name", "button").click()
    assert name.get_attribute("aria-sort") == "ascending"
    assert column(driver, "zoo-table", quick) == found[::-1]
    header(driver, "zoo-table", "epochs").find_element("tag name", "button").click()
    assert column(driver, "zoo-table", place("epochs")) == ["100", "20", "3"], "numbers, not letters"
    header(driver, "zoo-table", "trained on").find_element("tag name", "button").click()
    assert name.get_attribute("aria-sort") == "none"


def test_the_keyboard_sorts_and_what_is_not_known_stays_last(show) -> None:
    from selenium.webdriver.common.keys import Keys

    driver = show()
    for key, order in ((Keys.ENTER, "descending"), (Keys.SPACE, "ascending")):
        button = header(driver, "costs-table", "evaluation").find_element("tag name", "button")
        driver.execute_script("arguments[0].focus()", button)
        driver.switch_to.active_element.send_keys(key)
        assert header(driver, "costs-table", "evaluation").get_attribute("aria-sort") == order
        shown = [text.split()[0] for text in column(driver, "costs-table", 5)]
        assert shown[-1].startswith("–") and not any(text.startswith("–") for text in shown[:2])


def test_a_number_tells_how_it_was_made_on_hover_focus_and_tap(show) -> None:
    from selenium.webdriver import ActionChains
    from selenium.webdriver.common.keys import Keys

    driver = show()
    tip = driver.find_element("id", "tip")
    numbers = driver.find_elements("css selector", "#zoo-table .n")[1:]  # those of training
    assert not tip.is_displayed()
    ActionChains(driver).move_to_element(numbers[0]).perform()
    assert tip.is_displayed() and "recipes/train.py" in tip.text and tip.get_attribute("role") == "tooltip"
    assert "nearest neighbours" in tip.text and "450 images" in tip.text
    numbers[0].send_keys(Keys.ARROW_RIGHT)
    active = driver.switch_to.active_element
    assert active == numbers[1] and active.get_attribute("aria-describedby") == "tip" and "quick probe" in tip.text
    active.send_keys(Keys.ARROW_DOWN)
    assert driver.switch_to.active_element.text.startswith("71.4")
    driver.switch_to.active_element.send_keys(Keys.ESCAPE)
    assert not tip.is_displayed()
    numbers[2].click()
    assert tip.is_displayed()
    stops = "return [...document.querySelectorAll('#zoo-table .n')].filter(n => n.tabIndex === 0).length"
    assert driver.execute_script(stops) == 1, "one stop of the Tab key in a table"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_theme_follows_the_system_until_it_is_chosen(scheme: str, show, page: Path) -> None:
    other = {"light": "dark", "dark": "light"}[scheme]
    driver = show(scheme=scheme)
    background = "return getComputedStyle(document.body).backgroundColor"
    before = driver.execute_script(background)
    switch = driver.find_element("id", "theme")
    assert switch.text == f"{other.capitalize()} mode"
    switch.click()
    after = driver.execute_script(background)
    assert (
        sorted([before, after]) == ["rgb(21, 24, 28)", "rgb(255, 255, 255)"] and switch.text.lower() == f"{scheme} mode"
    )
    driver.get(page.as_uri())
    assert driver.execute_script(background) == after, "the choice is kept"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(scheme: str, show) -> None:
    driver = show(scheme=scheme)
    driver.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    driver.find_elements("css selector", "#zoo-table .n")[0].click()
    seen, low = driver.execute_script(CONTRAST, 4.5)
    assert seen > 500 and low == []
    assert driver.execute_script(CONTRAST, 22)[1], "no text has a contrast of 22: the measure would have shown it"


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_nothing_sticks_out_sideways(width: int, show) -> None:
    driver = show(width)
    driver.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    assert driver.execute_script("return document.documentElement.scrollWidth") <= width
    assert driver.execute_script(STICKING_OUT) == []
    if width == PHONE:
        wide = (
            "return [...document.querySelectorAll('.scroll')].filter(box => box.scrollWidth > box.clientWidth).length"
        )
        assert driver.execute_script(wide) > 3, "tables scroll inside their own boxes"


def test_the_tip_stays_inside_a_phone(show) -> None:
    driver = show(PHONE)
    for number in driver.find_elements("css selector", "#zoo-table .n")[:12]:
        driver.execute_script("arguments[0].scrollIntoView({block: 'center', inline: 'center'})", number)
        number.click()
        box = driver.find_element("id", "tip").rect
        assert box["x"] >= 0 and box["x"] + box["width"] <= PHONE, number.text


def test_without_scripts_it_can_still_be_read(show, page: Path) -> None:
    driver = show()
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        driver.get(page.as_uri())
        titled = driver.find_elements("css selector", "#zoo-table .n[title*='recipes/train.py']")
        assert titled and not driver.find_element("id", "theme").is_displayed()
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize("width", [PHONE, DESK])
def test_tables_end_with_a_whole_row_and_say_what_lies_outside(width: int, show) -> None:
    driver = show(width)
    driver.execute_script("for (const d of document.querySelectorAll('details')) d.open = true")
    driver.execute_async_script("setTimeout(arguments[0], 200)")
    cut = """
    return [...document.querySelectorAll(".scroll")].filter((box) => {
      const said = box.previousElementSibling.querySelector(".more").textContent;
      const wide = box.scrollWidth > box.clientWidth + 1, long = box.scrollHeight > box.clientHeight + 3;
      return wide !== said.includes("aside") || long !== said.includes("down");
    }).map((box) => box.outerHTML.slice(0, 80));
    """
    assert driver.execute_script(cut) == []
    if width == DESK:
        assert not driver.execute_script("return document.querySelector('#zoo .scroll').classList.contains('cut')")
    chart = "return document.querySelector('.rows').getBoundingClientRect().width"
    assert driver.execute_script(chart) > 0.9 * width, "the chart uses the width"
