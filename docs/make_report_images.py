"""Take the pictures of a report page in docs/images: three widths, light and dark. Needs playwright and chromium."""

from __future__ import annotations

import io
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

import circurve as cc

IMAGES = Path(__file__).parent / "images"
WIDTHS = {"phone": (390, 1500), "tablet": (820, 1400), "desktop": (1280, 1500)}
COLOURS = 255


def digits_page(path: Path) -> None:
    """The page of `circurve demo`, with fewer units."""
    data = cc.load_dataset("digits")
    train = data.train[:400]
    methods = (cc.Vanilla(), cc.Global(0.1), cc.Gated(0.1))
    fleet = cc.fit_fleet(
        cc.hclt(train, 16),
        train,
        [cc.Run(method) for method in methods],
        valid=data.valid,
        epochs=60,
        batch_size=100,
        step_size=0.2,
        select="last",
    )
    options = cc.report.ReportOptions(title="Digits: 64 pixels, plain EM")
    cc.report(fleet[0], train, path, valid=data.valid, history=fleet, options=options)


def take(page: Page, name: str) -> None:
    """One picture of what is visible, in few colours: it is small, and looks the same."""
    page.wait_for_timeout(500)
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    picture.quantize(COLOURS, dither=Image.Dither.NONE).save(IMAGES / f"report-{name}.png", optimize=True)


def show(section: str) -> Callable[[Page], Any]:
    """Scroll to a section."""
    return lambda page: page.evaluate(
        "id => document.getElementById(id).scrollIntoView({behavior: 'instant'})", section
    )


def explore(page: Page) -> None:
    """The circuit, with a node chosen and its numbers next to the pointer."""
    show("circuit")(page)
    page.wait_for_timeout(300)
    page.fill("#find-column", "pixel_4_2")
    page.keyboard.press("Enter")
    page.wait_for_timeout(300)
    box = page.locator("canvas").nth(1).bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2 + 4, box["y"] + box["height"] / 2 + 6)


def condition(page: Page) -> None:
    """Two pixels set."""
    show("playground")(page)
    for name in ("pixel_4_2", "pixel_2_5"):
        page.get_by_label("Column to set").select_option(label=name)
        page.get_by_label(f"Value of {name}").select_option(label="1")


def main() -> None:
    """All pictures."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        path = Path(folder) / "page.html"
        digits_page(path)
        browser = play.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for theme in ("light", "dark"):
            for width, (across, down) in WIDTHS.items():
                page = browser.new_page(viewport={"width": across, "height": down}, color_scheme=theme)
                page.goto(path.as_uri())
                take(page, f"{width}-{theme}")
                page.close()
        for name, theme, prepare in (("circuit", "light", explore), ("playground", "dark", condition)):
            page = browser.new_page(viewport={"width": 1280, "height": 1000}, color_scheme=theme)
            page.goto(path.as_uri())
            prepare(page)
            take(page, name)
        browser.close()


if __name__ == "__main__":
    main()
