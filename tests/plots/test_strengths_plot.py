from __future__ import annotations

import numpy as np
import pytest
from plot_helpers import legend_texts, panels, render

import circurve as cc
from circurve import plots
from circurve.errors import OptionError


def trained(methods: list[object], valid: bool = True) -> cc.FleetResult:
    x = (np.random.default_rng(0).random((60, 3)) < 0.4).astype(int)
    runs = [cc.Run(method=method, seed=seed) for method in methods for seed in range(2)]
    held = x[50:] if valid else False
    return cc.fit_fleet(cc.hclt(x, 2), x[:50], runs=runs, valid=held, epochs=2, progress=False)


def test_means_over_seeds_are_drawn_by_mu_with_plain_em_as_a_level() -> None:
    fleet = trained([cc.Vanilla(), cc.Gated(0.1), cc.Gated(0.0), cc.Global(0.1)])
    figure = plots.strengths(fleet)
    render(figure)
    (ax,) = panels(figure)
    assert legend_texts(figure) == ["vanilla", "gated by max_norm", "global"]
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "0.1"]
    scores = np.array([result.valid_ll for result in fleet]).reshape(4, 2).mean(1)
    assert ax.lines[0].get_ydata() == pytest.approx([scores[0]] * 2)
    gated, plain = (container.lines[0] for container in ax.containers)
    np.testing.assert_allclose(gated.get_ydata(), scores[[2, 1]])
    np.testing.assert_allclose(plain.get_ydata(), scores[[3]])
    assert plain.get_xdata()[0] > gated.get_xdata()[1]
    assert "validation" in ax.get_ylabel()


def test_without_held_out_rows_training_rows_count_and_gates_have_colours_of_their_own() -> None:
    figure = plots.strengths(trained([cc.Gated(0.1), cc.Gated(0.1, "rank")], valid=False))
    render(figure)
    (ax,) = panels(figure)
    assert "training" in ax.get_ylabel()
    assert len({container.lines[0].get_color() for container in ax.containers}) == 2


def test_a_fleet_without_a_penalty_has_no_strength() -> None:
    with pytest.raises(OptionError, match="no run of Global"):
        plots.strengths(trained([cc.Vanilla()]))
