"""The page in headless Chromium: drawn without errors, and it answers to pointer, keyboard and theme."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from page_helpers import HOSTILE

import circurve as cc
from circurve.report import ReportOptions

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright: pip install playwright")
CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs chromium: apt-get install chromium")


@dataclass
class Tab:
    """A page in a browser, with everything that it complained about or asked the network for."""

    page: Any
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def see(self, section: str) -> None:
        self.page.evaluate("id => document.getElementById(id).scrollIntoView({behavior: 'instant'})", section)
        self.page.wait_for_timeout(60)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with sync_api.sync_playwright() as play:
        chromium = play.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def path(made, tmp_path_factory):
    found = tmp_path_factory.mktemp("page") / "page.html"
    made.report.save(found)
    return found


def opened(browser, path, **options) -> Tab:
    tab = Tab(browser.new_page(**{"viewport": {"width": 1200, "height": 900}, **options}))
    tab.page.on("console", lambda message: tab.complaints.append(message.text) if message.type != "log" else None)
    tab.page.on("pageerror", lambda error: tab.complaints.append(str(error)))
    tab.page.on("request", lambda request: tab.requests.append(request.url))
    tab.page.goto(path.as_uri())
    return tab


@pytest.fixture
def tab(browser, path) -> Iterator[Tab]:
    made = opened(browser, path)
    yield made
    assert made.complaints == []
    assert made.requests == [path.as_uri()]
    made.page.close()


def centre_of(tab: Tab, unit: int) -> tuple[float, float]:
    """Where the cell of a unit is on the screen, in the first panel."""
    return tuple(
        tab.page.evaluate(
            """unit => {
              const {explorer} = circurve, panel = explorer.panels[0], {units} = explorer;
              const node = units.nodeOf[unit], order = units.order[node], side = Math.ceil(Math.sqrt(order.length));
              const at = order.indexOf(unit), cell = 0.82 / side, {x, y} = explorer.points[node];
              const across = (at % side + 0.5) * cell, down = (Math.floor(at / side) + 0.5) * cell;
              const [px, py] = panel.toScreen({x: x - 0.41 + across, y: y - 0.41 + down});
              const box = panel.canvas.getBoundingClientRect();
              return [box.left + px, box.top + py];
            }""",
            unit,
        )
    )


def test_every_section_is_drawn_without_a_complaint(tab, made):
    sections = ["training", "circuit", "columns", "playground", "rows", "nodes"]
    for section in sections:
        tab.see(section)
    assert tab.page.locator("nav a").all_text_contents() == [
        *("Training", "Circuit", "Columns", "What if?", "Rows", "Nodes")
    ]
    assert tab.page.locator(".findings strong").all_text_contents() == [f.headline for f in made.report.findings]
    for section, least in (("training", 2), ("columns", 6), ("playground", 6), ("rows", 1)):
        assert tab.page.locator(f"#{section} svg").count() >= least
    painted = tab.page.evaluate(
        """() => [...document.querySelectorAll('canvas')].map(c =>
          new Set(new Uint32Array(c.getContext('2d').getImageData(0, 0, c.width, c.height).data.buffer)).size)"""
    )
    assert len(painted) == 4
    assert min(painted) > 5  # colours
    assert HOSTILE in tab.page.locator("#columns h3").all_text_contents()
    assert tab.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_hovering_shows_the_numbers_of_a_unit(tab, made):
    tab.see("circuit")
    unit = 4
    tab.page.mouse.move(*centre_of(tab, unit))
    tip = tab.page.locator("#tip")
    assert tip.is_visible()
    label = tab.page.evaluate("u => circurve.explorer.units.label(u)", unit)
    assert tip.locator("strong").text_content() == label
    shown = dict(zip(tip.locator("dt").all_text_contents(), tip.locator("dd").all_text_contents(), strict=True))
    explorer = made.data["explorer"]
    assert float(shown["F²"]) == pytest.approx(explorer["flow_squared"][unit], rel=5e-3)
    assert float(shown["t"]) == pytest.approx(explorer["local"][unit], rel=5e-3)
    assert float(shown["T"]) == pytest.approx(explorer["total"][unit], rel=5e-3)
    share = 100 * explorer["total"][unit] / explorer["trace"]
    assert float(shown["of the trace"].removesuffix(" %")) == pytest.approx(share, rel=2e-2, abs=5e-3)
    assert shown["depth"] == "1"
    tab.page.mouse.move(5, 5)
    assert tip.is_hidden()


def test_clicking_lists_the_children_with_their_weights(tab, made):
    tab.see("circuit")
    unit = 5
    tab.page.mouse.click(*centre_of(tab, unit))
    name, number = tab.page.locator("#details code").text_content().removesuffix("]").split("[")
    weights = np.sort(made.result.model.weights(name)[int(number)])[::-1]
    shown = [
        float(t.removesuffix(" %").removeprefix("< "))
        for t in tab.page.locator("#details td.number").all_text_contents()
    ]
    assert shown == pytest.approx((100 * weights).tolist(), rel=1e-2, abs=0.011)
    before = tab.page.evaluate("circurve.explorer.selected")
    links = tab.page.locator("#details .children .link")
    if links.count():
        links.first.click()
        assert tab.page.evaluate("circurve.explorer.selected") != before


def test_a_column_is_found_by_its_name_and_the_drawing_moves_to_it(tab):
    tab.see("circuit")
    tab.page.fill("#find-column", "VIS")
    tab.page.keyboard.press("Enter")
    status = tab.page.locator("#circuit [role=status]").text_content()
    assert status.startswith("Selected: ")
    node = tab.page.evaluate(
        "circurve.explorer.units.nodes[circurve.explorer.units.nodeOf[circurve.explorer.selected]]"
    )
    assert node["own"] == [3]
    tab.page.fill("#find-column", "no such column")
    tab.page.keyboard.press("Enter")
    assert "No column has this" in tab.page.locator("#circuit [role=status]").text_content()


def test_the_keyboard_reaches_sums_units_and_zoom(tab):
    tab.see("circuit")
    tab.page.locator("canvas").first.focus()
    state = """() => {
      const {selected, transform, units} = circurve.explorer;
      return [selected, units.nodeOf[selected], transform.k];
    }"""
    tab.page.evaluate("circurve.explorer.choose(0)")
    tab.page.keyboard.press("ArrowDown")
    unit, node, _ = tab.page.evaluate(state)
    assert tab.page.evaluate("n => circurve.explorer.units.nodes[n].parent", node) == 0
    tab.page.keyboard.press("]")
    assert tab.page.evaluate(state)[:2] != [unit, node]
    assert tab.page.evaluate(state)[1] == node
    tab.page.keyboard.press("ArrowUp")
    assert tab.page.evaluate(state)[1] == 0
    tab.page.keyboard.press("+")
    assert tab.page.evaluate(state)[2] == pytest.approx(1.5)
    tab.page.keyboard.press("0")
    assert tab.page.evaluate(state)[2] == 1
    tab.page.keyboard.press("Enter")
    assert tab.page.evaluate("document.activeElement.id") == "details"
    assert "of the trace" in tab.page.locator("#live").text_content()


def test_colours_follow_a_quantity_and_reversals_can_be_marked(tab, made):
    tab.see("circuit")
    picture = "() => document.querySelector('canvas').toDataURL()"
    before = tab.page.evaluate(picture)
    tab.page.locator("#circuit figure select").first.select_option("depth")
    tab.page.wait_for_timeout(60)
    assert tab.page.evaluate(picture) != before
    first = made.data["explorer"]["reversals"][0]
    assert tab.page.locator("#reversals li").count() == len(made.data["explorer"]["reversals"])
    tab.page.locator("#reversals button").first.click()
    assert tab.page.evaluate("circurve.explorer.marked") == [first["used"], first["sharper"]]


def test_the_theme_follows_the_system_and_the_button(browser, path):
    tab = opened(browser, path, color_scheme="dark")
    background = "() => getComputedStyle(document.body).backgroundColor"
    dark = tab.page.evaluate(background)
    tab.page.get_by_role("button", name="Switch to light colours").click()
    light = tab.page.evaluate(background)
    assert dark != light
    tab.page.emulate_media(color_scheme="light")
    assert tab.page.evaluate(background) == light
    tab.page.emulate_media(color_scheme="dark", media="print")
    assert tab.page.evaluate(background) == "rgb(255, 255, 255)"
    assert tab.complaints == []
    tab.page.close()


def test_a_dark_page_is_printed_in_the_colours_of_a_light_one(browser, path):
    pictures = "() => [...document.querySelectorAll('canvas')].map(c => c.toDataURL())"
    printed = f"""() => {{
      dispatchEvent(new Event('beforeprint'));
      const found = ({pictures})();
      dispatchEvent(new Event('afterprint'));
      return found;
    }}"""
    found = {}
    for theme in ("light", "dark"):
        tab = opened(browser, path, color_scheme=theme)
        tab.see("circuit")
        tab.page.wait_for_timeout(200)
        found[theme] = tab.page.evaluate(pictures), tab.page.evaluate(printed)
        tab.page.close()
    assert found["dark"][0] != found["light"][0]
    assert found["dark"][1] == found["light"][1] == found["light"][0]


def test_paper_shows_whole_tables_and_panels_in_their_proportions(browser, path):
    tab = opened(browser, path)
    for section in ("circuit", "nodes"):
        tab.see(section)
    tab.page.set_viewport_size({"width": 700, "height": 1000})  # A4 less its margins
    tab.page.emulate_media(media="print")
    assert tab.page.evaluate("document.querySelector('.nodes').scrollWidth") <= 700
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= 700
    for shown, drawn in tab.page.evaluate(
        """() => [...document.querySelectorAll('canvas')].map(c =>
          [c.getBoundingClientRect().width / c.getBoundingClientRect().height, c.width / c.height])"""
    ):
        assert shown == pytest.approx(drawn, rel=0.02)
    assert tab.page.locator("#playground").is_hidden()  # nothing is set
    tab.page.close()


def test_it_fits_a_phone(browser, path):
    tab = opened(browser, path, viewport={"width": 360, "height": 740}, has_touch=True, is_mobile=True)
    for section in ("training", "circuit", "columns", "playground", "rows", "nodes"):
        tab.see(section)
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 360
    assert tab.complaints == []
    tab.page.close()


def test_the_playground_computes_what_the_model_says(tab, made):
    tab.see("playground")
    model, names = made.result.model.to(dtype=__import__("torch").float64), list(made.train.columns)
    ask = """evidence => {
      const {inference} = circurve.playground, found = inference.infer(new Map(evidence));
      return [found.logEvidence, circurve.page.columns.map((_, c) => Array.from(inference.distribution(c, found)))];
    }"""
    city = made.data["columns"][1]["labels"]
    for evidence, given in (
        ([], {}),
        ([[1, city.index("Rome")]], {"city": "Rome"}),
        ([[3, 4], [4, 1]], {"visits": 4, "member": True}),
        ([[0, 55.5], [2, 61.0], [1, city.index("Oslo")]], {"age": 55.5, HOSTILE: 61.0, "city": "Oslo"}),
    ):
        log_evidence, found = tab.page.evaluate(ask, evidence)
        if given:
            assert log_evidence == pytest.approx(model.marginal(given, log=True), rel=1e-6)
        for column, name in enumerate(names):
            if name in given:
                continue
            if name in ("city", "member"):
                expected = model.distribution(name, given=given)["probability"].tolist()
                assert found[column] == pytest.approx(expected, rel=1e-6)
            elif name in ("age", "visits"):
                grid = made.data["playground"]["grids"][column]
                expected = [model.conditional({name: x}, given=given) for x in grid[::10]]
                assert found[column][::10] == pytest.approx(expected, rel=1e-5)


def test_the_playground_is_set_by_its_controls(tab, made):
    tab.see("playground")
    tab.page.get_by_label("Column to set").select_option(label="city")
    tab.page.get_by_label("Value of city").select_option(label="Rome")
    model = made.result.model
    status = tab.page.locator("#playground .status")
    assert f"{100 * model.marginal({'city': 'Rome'}):.1f} %" in status.text_content()
    assert tab.page.locator("#playground article").first.locator("h3").text_content() == "visits"
    tab.page.get_by_label("Column to set").select_option(label="age")
    tab.page.get_by_label("Value of age").fill("70")
    tab.page.get_by_label("Value of age").press("Tab")
    log_density = model.marginal({"city": "Rome", "age": 70}, log=True)
    assert f"{log_density:.2f}".replace("-", "\u2212") in status.text_content()
    tab.page.get_by_label("Do not set city").click()
    tab.page.get_by_role("button", name="Clear").click()
    assert status.text_content().startswith("Nothing is set")


def test_tables_sort_and_filter(tab, made):
    tab.see("nodes")
    rows = tab.page.locator(".nodes tbody tr")
    assert rows.count() == min(20, len(made.data["explorer"]["total"]))
    header = tab.page.locator(".nodes th", has_text="depth")
    header.locator("button").click()
    assert header.get_attribute("aria-sort") == "descending"
    depths = [float(text) for text in rows.locator("td:nth-child(3)").all_text_contents()]
    assert depths == sorted(depths, reverse=True)
    tab.page.get_by_label("Filter nodes by name or column").fill("visits")
    assert all("visits" in text for text in rows.locator("td:first-child").all_text_contents())
    rows.first.locator("button").click()
    assert tab.page.evaluate("circurve.explorer.selected >= 0")
    tab.see("columns")
    tab.page.get_by_label("Filter columns by name").fill("CIT")
    assert tab.page.locator("#columns h3").all_text_contents() == ["city"]


def test_training_curves_can_be_switched_off(tab):
    tab.see("training")
    lines = tab.page.locator("#training .chart").first.locator("[aria-label=line] path")
    before = lines.count()
    tab.page.get_by_label("validation rows").uncheck()
    assert lines.count() < before
    tab.page.get_by_label("validation rows").check()
    assert lines.count() == before


def test_answers_found_beforehand_are_shown_for_large_circuits(browser, made, tmp_path):
    path = tmp_path / "large.html"
    cc.report(made.result.model, made.train, path, options=ReportOptions(max_parameters=0, max_weights=8))
    tab = opened(browser, path)
    tab.see("playground")
    tab.page.get_by_label("Column to set").select_option(label="city")
    tab.page.get_by_label("Value of city").select_option(label="Rome")
    assert "visits" in tab.page.locator("#playground h3").all_text_contents()
    tab.see("circuit")
    kept = tab.page.evaluate("[...circurve.page.explorer.weights.unit]")
    other = next(u for u in range(len(made.data["explorer"]["total"])) if u not in kept)
    tab.page.evaluate("u => circurve.explorer.choose(u)", other)
    assert "max_weights" in tab.page.locator("#details").text_content()
    assert tab.complaints == []
    tab.page.close()
