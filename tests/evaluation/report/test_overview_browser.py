"""The figure of all entries in a real browser: ticks by mouse, keyboard and without scripts, links, phone, print."""

from typing import Any

import pytest
from page_browser import DESK, PHONE

SEEN = """
const found = [...document.querySelectorAll(arguments[0])];
return found.filter((e) => e.checkVisibility() && e.getClientRects().length).length;
"""


def seen(driver: Any, selector: str) -> int:
    """How many elements are shown."""
    return driver.execute_script(SEEN, selector)


def unfold(driver: Any) -> None:
    driver.find_element("css selector", "#all > details > summary").click()


def tick(driver: Any, name: str) -> None:
    driver.execute_script("arguments[0].click()", driver.find_element("id", name))


def test_ticks_choose_entries_curves_and_pictures(show) -> None:
    driver = show()
    unfold(driver)
    assert seen(driver, ".card") == 3 and seen(driver, ".panel.q-knn .curve") == 3
    tick(driver, "show-2")
    assert seen(driver, ".card") == 2 and seen(driver, ".panel.q-knn .curve") == 2 and not seen(driver, ".e2")
    assert not seen(driver, ".panel.q-loss")
    tick(driver, "of-loss")
    assert seen(driver, ".panel.q-loss .curve") == 2
    tick(driver, "of-embedding")
    assert not seen(driver, ".q-embedding") and seen(driver, ".q-views") == 2
    tick(driver, "show-2")
    assert seen(driver, ".card") == 3


def test_buttons_tick_all_and_none_and_a_box_takes_the_space_bar(show) -> None:
    from selenium.webdriver.common.keys import Keys

    driver = show()
    unfold(driver)
    driver.find_element("css selector", "[data-tick=none]").click()
    assert not seen(driver, ".card") and not seen(driver, ".curve")
    driver.find_element("id", "show-1").send_keys(Keys.SPACE)
    assert seen(driver, ".card") == 1
    driver.find_element("css selector", "[data-tick=all]").click()
    assert seen(driver, ".card") == 3


def test_an_entry_is_folded_until_its_name_in_the_table_is_followed(show) -> None:
    driver = show()
    assert not seen(driver, ".entry dl")
    link = driver.find_element("css selector", "#zoo-table tbody th a")
    place = link.get_attribute("href").partition("#")[2]
    link.click()
    assert seen(driver, ".entry dl") == 1
    top = "return document.getElementById(arguments[0]).getBoundingClientRect().top"
    assert -5 <= driver.execute_script(top, place) < 300


def test_ticks_and_folds_work_without_scripts(show, page) -> None:
    driver = show()
    driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
    try:
        driver.get(page.as_uri())
        unfold(driver)
        assert not driver.find_element("css selector", "[data-tick=none]").is_displayed()
        assert len([one for one in driver.find_elements("css selector", ".card") if one.is_displayed()]) == 3
        driver.find_element("id", "show-2").click()
        assert len([one for one in driver.find_elements("css selector", ".card") if one.is_displayed()]) == 2
        driver.find_element("css selector", "#entries .entry summary").click()
        assert driver.find_element("css selector", ".entry dl").is_displayed()
    finally:
        driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})


@pytest.mark.parametrize(("width", "across"), [(PHONE, 1), (DESK, 2)])
def test_panels_and_pictures_stand_side_by_side_where_there_is_room(width: int, across: int, show) -> None:
    driver = show(width)
    unfold(driver)
    left = "return [...document.querySelectorAll('.panel')].filter((e) => e.getClientRects().length)"
    left += ".map((e) => Math.round(e.getBoundingClientRect().left))"
    assert len(set(driver.execute_script(left))) == across
    box = "const e = document.querySelector('.cards'); return [e.scrollWidth > e.clientWidth, e.clientWidth]"
    scrolls, inner = driver.execute_script(box)
    assert scrolls is (width == PHONE) and inner <= width
    text = "return parseFloat(getComputedStyle(document.querySelector('.panel text')).fontSize) "
    text += "* document.querySelector('.panel svg').getBoundingClientRect().width / 600"
    assert driver.execute_script(text) >= 9.5, "letters of an axis, in pixels"


def test_on_paper_tables_are_whole_and_controls_are_gone(show) -> None:
    driver = show(scheme="dark")
    unfold(driver)
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": []})
    assert not seen(driver, ".controls") and not seen(driver, "#theme") and seen(driver, ".card") == 3
    overflow = "return getComputedStyle(document.querySelector('#zoo .scroll')).overflow"
    assert driver.execute_script(overflow) == "visible"
    assert driver.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
