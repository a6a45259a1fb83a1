from __future__ import annotations

import io
from xml.etree import ElementTree

import pytest
from matplotlib.figure import Figure

from circurve.reproduction.figures import FIGURES, FigureSpec, figure_files
from circurve.reproduction.spec import ReproduceOptions

NAMES = [f"fig-{number}" for number in range(1, 8)]
SPECS = [pytest.param(FIGURES[name], id=name) for name in NAMES]


def test_there_are_seven_figures() -> None:
    assert list(FIGURES) == NAMES


@pytest.mark.parametrize("spec", SPECS)
def test_captions_say_what_is_shown_and_how_the_paper_reads_it(spec: FigureSpec) -> None:
    assert spec.title
    assert "The paper concludes:" in spec.reading
    assert spec.reading.endswith(".")
    assert not spec.title.endswith(".")


@pytest.mark.parametrize("name", NAMES)
def test_studies_carry_the_name_of_their_figure_and_the_options(name: str) -> None:
    options = ReproduceOptions(datasets=("digits",), seeds=(4,), epochs=3, device="cpu", units=5)
    study = FIGURES[name].study(options)
    if name in ("fig-6", "fig-7"):
        assert study is None
        return
    assert study is not None
    assert study.name == name
    assert study.datasets == ("digits",)
    assert study.seeds == (4,)
    assert (study.protocol.epochs, study.protocol.units) == (3, 5)


def test_the_same_data_give_the_same_files() -> None:
    spec = FIGURES["fig-4"]
    made = []
    for _ in range(2):
        figure = Figure()
        axes = figure.subplots()
        axes.plot([0, 1], [1, 0], marker="o", clip_on=True)
        made.append(figure_files(figure, spec.metadata))
    assert made[0] == made[1]
    assert set(made[0]) == {"png", "svg"}


def test_svg_files_carry_title_and_caption() -> None:
    spec = FIGURES["fig-1"]
    content = io.BytesIO()
    figure = spec.draw({"panels": {"digits": {"vanilla": {"train": [[-2.0, -1.0]], "test": [[-3.0, -2.0]]}}}})
    figure.savefig(content, format="svg", metadata=spec.metadata)
    texts = [element.text for element in ElementTree.fromstring(content.getvalue()).iter()]
    assert spec.title in texts
    assert spec.reading in texts
