from __future__ import annotations

import csv
import io
import math
from typing import Any

import pytest
from made_records import made_records
from rich.console import Console

import circurve as cc
from circurve.reproduction import ReproduceOptions
from circurve.reproduction.comparisons import FRACTIONS, IMPROVEMENTS, TEST_LL, paper_test_ll
from circurve.reproduction.outputs import TABLES
from circurve.reproduction.spec import DEFAULT_DATASETS
from circurve.reproduction.table import Number, Report, as_csv, as_latex, as_markdown, mark_best, print_report

NOT_COMPARED = "nltcs: the files are not those of DEBD: not compared with published numbers."
OPTIONS: dict[str, Any] = {"datasets": ("nltcs", "mine_"), "seeds": (0, 1), "mu": (0.1, 0.2)}


def rule(dataset: str, fraction: float, method: Any, seed: int) -> dict[str, float]:
    """Gated beats vanilla beats global, a little less with seed 1; mu 0.2 is the better one."""
    base = {cc.Vanilla: -6.0, cc.Global: -6.5, cc.Gated: -5.5}[type(method)]
    worse = 0.1 * seed + (1.0 if getattr(method, "mu", None) == 0.1 else 0.0)
    sharpness = {cc.Vanilla: 200.0, cc.Global: 50.0, cc.Gated: 100.0}[type(method)]
    dof = {cc.Vanilla: 0.2, cc.Global: 0.05, cc.Gated: 0.1}[type(method)]
    return {"test_ll": base - worse, "valid_ll": base - worse, "sharpness": sharpness, "dof": dof}


def report(table: str, **options: Any) -> Report:
    study = TABLES[table].study(ReproduceOptions(**{**OPTIONS, **options}))
    return TABLES[table].report(study, made_records(study, rule))


def shown(made: Report, width: int = 80) -> str:
    console = Console(file=io.StringIO(), width=width)
    print_report(made, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_papers_numbers_are_there_for_all_20_data_sets() -> None:
    assert set(TEST_LL) == set(FRACTIONS) == set(DEFAULT_DATASETS)
    spec = {"nltcs": (-6.0, -6.48, -6.0), "plants": (-12.68, -15.99, -12.67), "dna": (-87.78, -81.33, -81.28)}
    spec |= {"baudio": (-39.62, -42.45, -39.62), "bbc": (-269.58, -256.4, -260.07)}
    for name, numbers in spec.items():
        for label, number in zip(("vanilla", "global", "gated"), numbers, strict=True):
            found = paper_test_ll(name, label)
            assert found is not None
            assert found.mean == number
    assert IMPROVEMENTS[0.01] == (7.12, 8.81, 23.04)
    quarter = paper_test_ll("bbc", "global", 0.25)
    assert quarter is not None
    assert quarter.mean == -281.33
    assert paper_test_ll("mine", "vanilla") is None
    assert paper_test_ll("bbc", "global", 0.33) is None
    assert paper_test_ll("bbc", "smoothed") is None
    assert all(mean < 0 <= std for row in TEST_LL.values() for mean, std in row)


def test_table_b_has_ours_and_the_papers_with_best_and_second_marked() -> None:
    made = report("table-b")
    main = made.tables[0]
    assert main.heads == ("data set", "vanilla", "paper", "global", "paper", "gated", "paper")
    nltcs, mine = main.rows
    texts = [cell if isinstance(cell, str) else cell.text() for cell in nltcs]
    assert texts == ["nltcs", "-6.05±0.07", "-6.00", "-6.55±0.07", "-6.48", "-5.55±0.07", "-6.00"]
    marks = [cell.mark for cell in nltcs if isinstance(cell, Number)]
    assert marks == ["second", None, None, None, "best", None]
    assert [cell for cell in mine if isinstance(cell, str)] == ["mine_", "-", "-", "-"]


def test_scores_on_other_files_are_not_compared_with_the_paper() -> None:
    for table in ("table-a", "table-b", "table-c", "readings", "pseudocounts"):
        study = TABLES[table].study(ReproduceOptions(**{**OPTIONS, "datasets": ("nltcs",)}))
        records = made_records(study, rule)
        compared = [any(note == NOT_COMPARED for note in TABLES[table].report(study, records).notes)]
        for record in records:
            record["environment"]["debd"] = False
        made = TABLES[table].report(study, records)
        assert [*compared, NOT_COMPARED in made.notes] == [False, True]
        assert not any(value for row in made.values for name, value in row.items() if name.startswith("paper"))
        papers = [place for place, head in enumerate(made.tables[0].heads) if "paper" in head]
        assert all(row[place] == "-" for row in made.tables[0].rows for place in papers)
        large = [row for row in made.tables[0].rows if "(large sets)" in str(row[0])]
        assert len(large) == (4 if table == "pseudocounts" else 0)
        assert all(cell == "-" for row in large for cell in row[1:])


def test_table_b_compares_pairs_and_counts() -> None:
    comparison, counts = report("table-b").tables[1:]
    row = [cell if isinstance(cell, str) else cell.text() for cell in comparison.rows[0]]
    assert row == ["nltcs", "-0.500±0.000", "<0.001", "+0.500±0.000", "<0.001", "0.2", "0.2"]
    assert counts.rows[0] == ("global against vanilla", "0 / 0 / 2", "0 / 0 / 1")
    assert counts.rows[1] == ("gated against vanilla", "2 / 0 / 0", "0 / 1 / 0")


def test_table_b_says_when_the_choice_is_at_the_edge_of_the_grid() -> None:
    def told(**options: Any) -> list[str]:
        return [note for note in report("table-b", **options).notes if "smallest strength" in note]

    assert told() == []
    assert told(mu=(0.2, 0.1, 0.3), datasets=("nltcs",)) == []
    edge = "Validation chose the smallest strength there was, 0.2, for global in 2 of 2 cases, gated in 2 of 2 cases."
    assert told(mu=(0.2, 0.3)) == [edge]
    assert told(mu=(0.2,)) == []


def test_columns_of_the_paper_are_left_out_where_it_has_nothing() -> None:
    made = report("table-b", datasets=("mine",))
    assert made.tables[0].heads == ("data set", "vanilla", "global", "gated")
    assert [row[2] for row in made.tables[-1].rows] == ["-"] * 3


def test_every_table_says_how_to_run_it_again() -> None:
    for table in TABLES:
        notes = "\n".join(report(table).notes)
        for part in ("circurve reproduce", "Seeds: 0, 1", "nltcs", "a machine", "torch 2.0", "circurve 1.0 (abc)"):
            assert part in notes
        assert "validation log-likelihood" in notes


def test_table_c_has_a_row_for_each_share() -> None:
    main = report("table-c").tables[0]
    leads = [row[:2] for row in main.rows]
    assert leads == [(name, share) for name in ("nltcs", "mine_") for share in ("25%", "50%", "100%")]
    papers = [cell.mean for cell in main.rows[0][3::2] if isinstance(cell, Number)]
    assert papers == [-6.09, -6.5, -6.1]


def test_table_a_is_the_improvement_over_vanilla_in_percent() -> None:
    made = report("table-a")
    first, second = made.tables[0].rows[:2]
    assert first[:2] == ("1%", "global")
    numbers = [cell.mean if isinstance(cell, Number) else cell for cell in first[2:]]
    nll = -100 * (0.5 / 6.0 + 0.5 / 6.1) / 2
    assert numbers == pytest.approx([nll, 7.12, 75.0, 8.81, 75.0, 23.04, 15.0])
    assert second[:2] == ("1%", "gated")
    assert second[3] == "-"
    gain = second[2]
    assert isinstance(gain, Number)
    assert gain.mean == pytest.approx(-nll)
    assert gain.std == 0.0
    assert len(made.values) == 2 * 5 * 2


def test_table_a_is_positive_for_a_lower_negative_nll() -> None:
    study = TABLES["table-a"].study(ReproduceOptions(**{**OPTIONS, "datasets": ("mine",)}))
    records = made_records(study, rule)
    for record in records:  # as of continuous columns
        for epoch in ("final", "best"):
            record[epoch]["test_ll"] = {"vanilla": 10.0, "global": 9.0, "gated": 11.0}[record["label"]]
    rows = TABLES["table-a"].report(study, records).tables[0].rows[:2]
    assert [(row[1], row[2].text()) for row in rows] == [("global", "-10.00"), ("gated", "10.00")]


def test_table_a_leaves_out_what_is_not_a_number() -> None:
    study = TABLES["table-a"].study(ReproduceOptions(**OPTIONS))
    records = made_records(study, rule)
    for record in records:
        if record["dataset"] == "nltcs":
            record["final"]["dof"] = 0.0 if record["label"] == "vanilla" else None
    row = TABLES["table-a"].report(study, records).tables[0].rows[0]
    dof = row[4]
    assert isinstance(dof, Number)
    assert dof.mean == pytest.approx(75.0)


def with_starts(table: str) -> Report:
    """By the protocol `best`; validation prefers prototypes for global, and a pseudocount of 0.01 for vanilla."""
    study = TABLES[table].study(ReproduceOptions(**OPTIONS, protocol="best"))
    records = made_records(study, rule)
    for record in records:
        method = record["method"]
        if (method["name"], method["init"]) == ("global", "prototypes") or method["pseudocount"] == 0.01:
            record["best"] = {**record["best"], "valid_ll": record["best"]["valid_ll"] + 0.1}
    return TABLES[table].report(study, records)


@pytest.mark.parametrize(("table", "lead"), [("table-b", ("nltcs",)), ("table-c", ("nltcs", "25%"))])
def test_tables_b_and_c_show_the_starts_and_pseudocounts_that_were_chosen(table: str, lead: tuple[str, ...]) -> None:
    (choices,) = [t for t in with_starts(table).tables if t.title == "Chosen by validation"]
    assert choices.heads[-3:] == ("vanilla:\nstart, pseudocount", "global:\nstart, mu", "gated:\nstart, mu")
    assert choices.rows[0] == (*lead, "random, 0.01", "prototypes, 0.2", "random, 0.2")
    assert "Chosen by validation" not in [t.title for t in report(table).tables]


def test_table_a_shows_the_starts_that_are_compared_beside_mu() -> None:
    made = with_starts("table-a")
    assert made.tables[1].heads[-4:] == ("mu", "start", "vanilla's\nstart", "vanilla's\npseudocount")
    assert made.tables[1].rows[0][-4:] == ("0.2", "prototypes", "random", "0.01")
    assert made.tables[1].rows[1][-4:] == ("0.2", "random", "random", "0.01")
    assert report("table-a").tables[1].heads[-1] == "mu"
    first = next(csv.DictReader(io.StringIO(as_csv(made))))
    assert (first["init"], first["vanilla_init"], first["vanilla_pseudocount"]) == ("prototypes", "random", "0.01")


@pytest.mark.parametrize("table", ["table-a", "table-b", "table-c"])
def test_what_could_be_chosen_is_listed(table: str) -> None:
    notes = report(table, protocol="best").notes
    assert "vanilla: pseudocounts of 0, 0.003, 0.01, 0.03, from a random or prototypes start." in notes
    assert "global, gated: mu of 0.1, 0.2, from a random or prototypes start." in notes
    assert any(note.startswith("Of several strengths mu (and starts, pseudocounts or gates)") for note in notes)
    plain = report(table).notes
    assert "global, gated: mu of 0.1, 0.2." in plain
    assert not any(note.startswith("vanilla:") or "start" in note.partition("random start")[2] for note in plain)
    gates = report(table, gate=("max_norm", "rank")).notes
    assert "gated: mu of 0.1, 0.2, gated by max_norm or rank." in gates


def test_the_terminal_shows_choices_in_80_columns() -> None:
    assert max(len(line) for line in shown(with_starts("table-c")).splitlines() if "prototypes, " in line) <= 80


def test_table_d_ranks_and_counts_against_both_baselines() -> None:
    made = report("table-d")
    overview = {row[0]: row for row in made.tables[0].rows}
    assert made.tables[0].heads[:3] == ("method", "nltcs", "mine_")
    assert overview["vanilla"][-2:] == ("-", "0 / 2 / 0")
    assert overview["gated-flow_local"][-2:] == ("2 / 0 / 0", "2 / 0 / 0")
    assert overview["global"][-2:] == ("0 / 0 / 2", "0 / 0 / 2")
    gated = [float(str(overview[label][-3])) for label in overview if label.startswith("gated")]
    assert set(gated) == {3.5}  # six that are equal share the ranks 1 to 6
    assert len(made.tables[1].rows) == 2 * 10


def test_table_d_says_which_of_several_starts_it_has() -> None:
    note = "Of these starts all methods of this table have the first one, random."
    assert note in report("table-d", protocol="best").notes
    assert not any("starts" in line for line in report("table-d").notes)


def test_table_d_with_many_data_sets_keeps_to_ranks() -> None:
    names = tuple(f"set{i}" for i in range(9))
    assert report("table-d", datasets=names).tables[0].heads[1] == "rank"


def test_markdown_marks_best_and_second() -> None:
    text = as_markdown(report("table-b"))
    assert text.startswith("# Table B")
    assert "| nltcs | <u>-6.05±0.07</u> | -6.00 | -6.55±0.07 | -6.48 | **-5.55±0.07** | -6.00 |" in text
    lines = [line for line in text.splitlines() if line.startswith("|")]
    assert all(line.endswith("|") for line in lines)


def test_latex_is_a_booktabs_table_with_names_escaped() -> None:
    text = as_latex(report("table-b"))
    assert (
        r"mine\_ & \underline{$-$6.05$\pm$0.07} & - & $-$6.55$\pm$0.07 & - & \textbf{$-$5.55$\pm$0.07} & - \\" in text
    )
    for part in (r"\toprule", r"\midrule", r"\bottomrule", r"\begin{tabular}{lrrrrrr}"):
        assert part in text
    assert all(line.startswith("%") for line in text[: text.index(r"\begin{table}")].splitlines())


@pytest.mark.parametrize("table", TABLES)
def test_csv_has_every_number_unrounded(table: str) -> None:
    made = report(table)
    rows = list(csv.DictReader(io.StringIO(as_csv(made))))
    assert len(rows) == len(made.values)
    assert all(set(value) <= set(made.columns) for value in made.values)
    if table == "table-b":
        first = next(row for row in rows if row["label"] == "gated")
        assert float(first["mean"]) == pytest.approx(-5.55)
        assert float(first["paper_mean"]) == -6.0
        assert (first["mu"], first["gate"], first["candidates"]) == ("0.2", "max_norm", "2")
        assert first["init"] == "random"
        assert float(first["minus_vanilla"]) == pytest.approx(0.5)


def test_the_terminal_shows_whole_numbers_in_80_columns() -> None:
    text = shown(report("table-b"))
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "-6.55±0.07" in text
    assert "…" not in text


def test_a_terminal_that_is_too_narrow_does_not_cut_numbers() -> None:
    text = shown(report("table-b"), width=40)
    assert "…" not in text
    assert "-5.55±0.07" in text


def test_numbers_are_shown_without_a_negative_zero() -> None:
    assert Number(-0.0001).text() == "0.00"
    assert Number(0.0001, signed=True).text() == "0.00"
    assert Number(0.123, 0.4567, 3, signed=True).text() == "+0.123±0.457"
    assert Number(math.nan).text() == "-"


def test_marks_need_a_choice_and_pass_over_what_is_not_known() -> None:
    assert [n.mark for n in mark_best([Number(1.0)])] == [None]
    assert [n.mark for n in mark_best([Number(1.0), Number(math.nan), Number(2.0)])] == ["second", None, "best"]
