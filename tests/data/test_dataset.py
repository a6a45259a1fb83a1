"""Data sets by name, the list of them, and splits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from circurve.data import Dataset, list_datasets, load_data, load_dataset, split_rows
from circurve.errors import DataError, DownloadError, OptionError

BUILT_IN = ["digits", "triangle", "moons", "spiral", "pinwheel"]
PAPER_NAMES = [
    "accidents", "ad", "baudio", "bbc", "bnetflix", "book", "c20ng",
    "cr52", "cwebkb", "dna", "jester", "kdd", "kosarek", "msnbc",
    "msweb", "nltcs", "plants", "pumsb_star", "tmovie", "tretail",
]  # fmt: skip
OTHER_NAMES = ["adult", "connect4", "moviereview", "mushrooms", "nips", "ocr_letters", "rcv1", "voting"]
DEBD_NAMES = sorted(PAPER_NAMES + OTHER_NAMES)


def write_splits(folder: Path, name: str, train: str = "0,1\n1,1\n0,0\n") -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for split, text in (("train", train), ("valid", "1,0\n"), ("test", "1,1\n0,1\n")):
        (folder / f"{name}.{split}.data").write_text(text)


def refusal(name: str | Path, data_dir: Path | str | None = None) -> str:
    with pytest.raises(DataError) as caught:
        load_dataset(name, data_dir)
    message = str(caught.value)
    assert "\n" not in message
    return message


class TestDigits:
    def test_pixels_are_binary_and_split_70_15_15(self) -> None:
        data = load_dataset("digits")
        assert data.name == "digits"
        assert data.valid is not None
        assert data.test is not None
        assert (len(data.train), len(data.valid), len(data.test)) == (1257, 270, 270)
        assert {part.shape[1] for part in (data.train, data.valid, data.test)} == {64}
        assert set(np.unique(data.train)) == {0, 1}
        assert data.train.dtype == np.uint8
        assert data.columns is not None
        assert data.columns[:2] == ("pixel_0_0", "pixel_0_1")

    def test_ink_is_a_value_above_seven_and_no_image_is_lost(self) -> None:
        from sklearn.datasets import load_digits

        data = load_dataset("digits")
        assert data.valid is not None
        assert data.test is not None
        together = np.concatenate([data.train, data.valid, data.test])
        expected = (load_digits().data > 7).astype(np.uint8)
        assert sorted(map(bytes, together)) == sorted(map(bytes, expected))

    def test_the_split_is_always_the_same(self) -> None:
        first, second = load_dataset("digits"), load_dataset("digits")
        np.testing.assert_array_equal(first.train, second.train)
        assert int(first.train.astype(np.int64).sum(axis=1) @ np.arange(1257)) == 16328367

    def test_data_dir_is_not_needed_nor_looked_at(self) -> None:
        assert load_dataset("digits", "/nowhere").name == "digits"


class TestFolders:
    @pytest.mark.parametrize("layout", ["datasets/tiny", "tiny", "."])
    def test_all_three_layouts_are_found(self, tmp_path: Path, layout: str) -> None:
        write_splits(tmp_path / layout, "tiny")
        data = load_dataset("tiny", str(tmp_path))
        assert data.name == "tiny"
        assert data.columns is None
        assert data.train.tolist() == [[0, 1], [1, 1], [0, 0]]
        assert data.valid is not None
        assert data.valid.tolist() == [[1, 0]]
        assert data.test is not None
        assert data.test.tolist() == [[1, 1], [0, 1]]
        assert repr(data) == "<Dataset tiny: 2 variables, rows: 3 train, 1 valid, 2 test>"

    @pytest.mark.parametrize("name", DEBD_NAMES)
    def test_every_debd_name_without_a_folder_is_looked_for_on_the_network(self, name: str) -> None:
        with pytest.raises(DownloadError, match=rf"cannot download http://.*/datasets/{name}/{name}\.train\.data: "):
            load_dataset(name)

    def test_a_set_in_the_folder_wins_over_a_built_in_one(self, tmp_path: Path) -> None:
        write_splits(tmp_path, "moons")
        assert load_dataset("moons", tmp_path).train.shape == (3, 2)
        assert len(load_dataset("spiral", tmp_path).train) == 2000

    def test_nothing_is_written_beside_the_data(self, tmp_path: Path) -> None:
        write_splits(tmp_path / "tiny", "tiny")
        before = sorted(tmp_path.rglob("*"))
        load_dataset("tiny", tmp_path)
        assert sorted(tmp_path.rglob("*")) == before

    def test_an_unknown_name_lists_the_known_ones_and_near_misses(self) -> None:
        message = refusal("NLTC")
        known = ", ".join([*BUILT_IN, *DEBD_NAMES])
        assert message == f"unknown data set 'NLTC' (did you mean nltcs?); choose one of {known}"
        assert "did you mean" not in refusal("zzzzzz")

    def test_a_name_that_is_not_in_the_folder_lists_what_is(self, tmp_path: Path) -> None:
        write_splits(tmp_path / "datasets" / "plants", "plants")
        write_splits(tmp_path / "mine", "mine")
        expected = (
            f"no data set 'plans' in {tmp_path} (did you mean plants?); found there: mine, plants; "
            f"built in: {', '.join(BUILT_IN)}"
        )
        assert refusal("plans", tmp_path) == expected
        expected = f"no data set 'nltcs' in {tmp_path}; found there: mine, plants; without data_dir it is downloaded"
        assert refusal("nltcs", tmp_path) == expected

    def test_a_folder_without_data_says_so(self, tmp_path: Path) -> None:
        assert "found there: no NAME.train.data file" in refusal("nltcs", tmp_path)

    def test_a_folder_that_is_missing_or_no_folder_is_named(self, tmp_path: Path) -> None:
        assert refusal("nltcs", tmp_path / "gone") == f"data_dir {tmp_path / 'gone'}: no such folder"
        file = tmp_path / "file"
        file.write_text("x")
        assert refusal("nltcs", file) == f"data_dir {file}: is not a folder"

    def test_a_missing_split_is_named(self, tmp_path: Path) -> None:
        write_splits(tmp_path / "tiny", "tiny")
        path = tmp_path / "tiny" / "tiny.valid.data"
        path.unlink()
        assert refusal("tiny", tmp_path) == f"{path}: no such file"

    def test_splits_of_different_width_are_refused(self, tmp_path: Path) -> None:
        write_splits(tmp_path / "tiny", "tiny", train="0,1,1\n")
        assert refusal("tiny", tmp_path) == "tiny: train has 3 columns, valid has 2"

    def test_a_wrong_line_is_named(self, tmp_path: Path) -> None:
        write_splits(tmp_path / "tiny", "tiny", train="0,1\n0\n")
        assert refusal("tiny", tmp_path) == f"{tmp_path}/tiny/tiny.train.data:2: expected 2 fields, found 1"


class TestFolderOfOneSet:
    def test_a_path_to_its_folder_loads_a_set(self, tmp_path: Path) -> None:
        write_splits(tmp_path / "other" / "tiny", "tiny")
        for path in (tmp_path / "other" / "tiny", f"{tmp_path}/other/tiny/"):
            for load in (load_dataset, load_data):
                data = load(path)
                assert data.name == "tiny"
                assert data.test is not None
                assert data.test.tolist() == [[1, 1], [0, 1]]

    def test_the_folder_may_have_another_name(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write_splits(tmp_path / "version 2", "tiny")
        assert load_dataset(tmp_path / "version 2").name == "tiny"
        write_splits(tmp_path / "mine", "tiny")
        monkeypatch.chdir(tmp_path)
        assert load_data("mine").name == "tiny"

    def test_a_name_with_a_dot_is_a_name_where_the_folder_has_it(self, tmp_path: Path) -> None:
        write_splits(tmp_path / "tiny-1.5", "tiny-1.5")
        assert load_data("tiny-1.5", tmp_path).name == "tiny-1.5"

    def test_other_folders_are_refused(self, tmp_path: Path) -> None:
        assert refusal(f"{tmp_path}/gone") == f"{tmp_path}/gone: no such folder"
        (tmp_path / "file").write_text("x")
        assert refusal(f"{tmp_path}/file") == f"{tmp_path}/file: is not a folder"
        expected = f"{tmp_path}: the folder contains no data set: no file NAME.train.data"
        assert refusal(tmp_path) == expected
        write_splits(tmp_path / "datasets" / "a", "a")
        write_splits(tmp_path / "datasets" / "b", "b")
        expected = f"{tmp_path}: is a folder of data sets; pass it as data_dir, with one of the names a, b"
        assert refusal(tmp_path) == expected
        assert "one of the names a, b" in refusal(tmp_path / "datasets")


class TestList:
    def test_without_a_folder_only_what_is_built_in_is_available(self) -> None:
        listed = {info.name: info for info in list_datasets()}
        assert list(listed) == [*BUILT_IN, *DEBD_NAMES]
        assert [name for name, info in listed.items() if info.available] == BUILT_IN
        assert (listed["nltcs"].variables, listed["nltcs"].rows) == (16, (16181, 2157, 3236))
        assert listed["nltcs"].source == "download on first use"

    @pytest.mark.parametrize("name", BUILT_IN)
    def test_the_sizes_of_built_in_sets_are_true(self, name: str) -> None:
        data = load_dataset(name)
        info = next(info for info in list_datasets() if info.name == name)
        assert data.name == name
        assert info.source == ("embedded" if name == "digits" else "synthetic")
        assert info.variables == data.train.shape[1]
        assert info.rows == tuple(None if part is None else len(part) for part in (data.train, data.valid, data.test))

    def test_with_a_folder_the_others_of_debd_are_not_there(self, tmp_path: Path) -> None:
        write_splits(tmp_path / "nltcs", "nltcs")
        write_splits(tmp_path / "moons", "moons")
        listed = {info.name: info for info in list_datasets(tmp_path)}
        assert listed["nltcs"].source == str(tmp_path / "nltcs")
        assert (listed["moons"].source, listed["moons"].rows) == (str(tmp_path / "moons"), (3, 1, 2))
        assert (listed["plants"].source, listed["plants"].available) == ("not in data_dir", False)
        assert listed["spiral"].available

    def test_sets_in_the_folder_are_measured(self, tmp_path: Path) -> None:
        write_splits(tmp_path / "mine", "mine", train="0,1\n1,1")
        info = next(info for info in list_datasets(tmp_path) if info.name == "mine")
        assert (info.variables, info.rows, info.source) == (2, (2, 1, 2), str(tmp_path / "mine"))
        assert info.available

    def test_a_damaged_set_does_not_hide_the_others(self, tmp_path: Path) -> None:
        write_splits(tmp_path / "mine", "mine")
        (tmp_path / "mine" / "mine.test.data").unlink()
        info = next(info for info in list_datasets(tmp_path) if info.name == "mine")
        assert (info.variables, info.rows, info.available) == (None, None, False)
        assert info.source == f"{tmp_path}/mine/mine.test.data: no such file"


class TestSplits:
    def test_every_row_is_in_one_part_and_rows_keep_their_order(self) -> None:
        values = np.arange(100).reshape(100, 1)
        train, valid, test = split_rows(values, valid=0.2, test=0.1, seed=3)
        assert valid is not None
        assert test is not None
        assert (len(train), len(valid), len(test)) == (70, 20, 10)
        assert sorted(np.concatenate([train, valid, test])[:, 0]) == list(range(100))
        for part in (train, valid, test):
            assert (np.diff(part[:, 0]) > 0).all()

    def test_the_seed_alone_decides(self) -> None:
        values = np.arange(20).reshape(20, 1)
        np.testing.assert_array_equal(split_rows(values, seed=1)[0], split_rows(values, seed=1)[0])
        assert not np.array_equal(split_rows(values, seed=1)[0], split_rows(values, seed=2)[0])

    def test_a_share_of_zero_gives_none_and_a_small_share_one_row(self) -> None:
        train, valid, test = split_rows(np.zeros((5, 2)), valid=0, test=0.01)
        assert len(train) == 4
        assert valid is None
        assert test is not None
        assert test.shape == (1, 2)

    def test_too_few_rows_are_refused(self) -> None:
        expected = "2 rows are too few for shares of 0.1 for validation and 0.1 for test"
        with pytest.raises(DataError, match=expected):
            split_rows(np.zeros((2, 2)))

    @pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
    def test_shares_out_of_range_are_refused(self, share: float) -> None:
        with pytest.raises(OptionError, match="valid must be a share of the rows from 0 to below 1, not"):
            split_rows(np.zeros((5, 2)), valid=share)
        with pytest.raises(OptionError, match="test must be a share"):
            split_rows(np.zeros((5, 2)), test=share)

    @pytest.mark.parametrize("seed", [-1, 0.5, True])
    def test_seeds_that_are_no_whole_number_are_refused(self, seed: int) -> None:
        with pytest.raises(OptionError, match="seed must be a whole number >= 0, not"):
            split_rows(np.zeros((5, 2)), seed=seed)


def test_names_must_be_as_many_as_columns() -> None:
    with pytest.raises(DataError, match="x: train has 2 columns, but columns= has 1 name"):
        Dataset("x", np.zeros((1, 2)), columns=("a",))


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_rows_made_with_the_seed_of_a_split_are_not_split_by_their_values(seed: int) -> None:
    drawn = np.random.default_rng(seed).random(1000)
    train, _, test = split_rows(drawn[:, None], 0.0, 0.2, seed)
    assert abs(float(np.mean(train)) - float(np.mean(test))) < 0.1  # four standard errors
