"""Packed bits next to a downloaded text: used if they are right, silently made again if they are not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from circurve.data import cache, debd, load_dataset
from circurve.data.catalogue import is_debd
from circurve.data.debd import SPLITS
from debd_server import content, entry, flipped


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache with the texts of a set, and nobody to download from."""
    monkeypatch.setenv("CIRCURVE_CACHE", str(tmp_path))
    monkeypatch.setitem(debd.COLLECTION, "tiny", entry("tiny"))
    folder = tmp_path / "debd/datasets/tiny"
    folder.mkdir(parents=True)
    for split in SPLITS:
        (folder / f"tiny.{split}.data").write_bytes(content("tiny", split))
    return folder


def test_the_second_time_the_text_is_not_looked_at(folder: Path) -> None:
    first = load_dataset("tiny")
    for split in SPLITS:
        (folder / f"tiny.{split}.data").unlink()
    again = load_dataset("tiny")
    for split in SPLITS:
        np.testing.assert_array_equal(getattr(first, split), getattr(again, split))
    assert again.train.dtype == np.uint8


def test_rows_are_those_of_the_collection_wherever_they_come_from(folder: Path) -> None:
    data = load_dataset("tiny", folder)
    assert is_debd(data)
    assert is_debd(replace(data, train=np.asarray(data.train).astype(float)))
    assert not is_debd(replace(data, name="other"))
    assert not is_debd(replace(data, train=data.train[1:]))
    assert not is_debd(replace(data, train=np.asarray(data.train)[::-1]))
    assert not is_debd(replace(data, test=None))
    text = folder / "tiny.valid.data"
    text.write_bytes(flipped(text.read_bytes()))
    assert not is_debd(load_dataset("tiny", folder))
    text.write_bytes(b"2" + content("tiny", "valid")[1:])
    assert not is_debd(load_dataset("tiny", folder))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    start = raw.index(b"bits.npy") + 140  # within the bits themselves
    raw[start] ^= 1
    path.write_bytes(raw)


def other_bits(path: Path) -> None:
    """A whole archive of bits that nobody damaged, and that are not those of the text."""
    with np.load(path) as loaded:
        bits = loaded["bits"]
    bits[3, 0] ^= 128
    np.savez(path, bits=bits)


def another_shape(path: Path) -> None:
    np.savez(path, bits=np.zeros((60, 99), np.uint8))


def other_numbers(path: Path) -> None:
    np.savez(path, bits=np.zeros((60, 2)))


def other_names(path: Path) -> None:
    np.savez(path, rows=np.zeros((60, 2), np.uint8))


def very_long(path: Path) -> None:
    path.write_bytes(path.read_bytes() + bytes(10_000))


def of_an_earlier_version(path: Path) -> None:
    """The file had the hash of its text, and bits that nothing compared with it."""
    blob = entry("tiny").blob("train")
    np.savez(path, bits=np.zeros((60, 2), np.uint8), shape=np.array([60, 13]), source=np.array(blob))


def nothing(path: Path) -> None:
    path.write_bytes(b"")


def words(path: Path) -> None:
    path.write_text("not an archive")


def array(path: Path) -> None:
    with path.open("wb") as file:
        np.save(file, np.zeros(3))


DAMAGES = [cut, flip, other_bits, another_shape, other_numbers, other_names, very_long, nothing, words, array]
DAMAGES += [of_an_earlier_version]


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_or_stale_bits_are_made_again(folder: Path, damage: Callable[[Path], None]) -> None:
    first = load_dataset("tiny").train
    bits = folder / "tiny.train.bits.npz"
    right = bits.read_bytes()
    damage(bits)
    assert bits.read_bytes() != right
    np.testing.assert_array_equal(load_dataset("tiny").train, first)
    (folder / "tiny.train.data").unlink()
    np.testing.assert_array_equal(load_dataset("tiny").train, first)  # from the new bits


def test_a_text_that_was_changed_is_not_trusted(folder: Path) -> None:
    path = folder / "tiny.train.data"
    path.write_bytes(flipped(path.read_bytes()))
    assert cache.recall(entry("tiny"), "train") is None
    assert cache.recall(entry("tiny"), "valid") is not None


def test_rows_come_also_where_bits_cannot_be_written(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(cache, "_write_bits", full)
    assert load_dataset("tiny").train.shape == (60, 13)
    assert not list(folder.glob("*.npz"))


def test_a_table_that_is_not_binary_is_not_packed(folder: Path) -> None:
    raw = b"0,12\n3,4\n"
    rows = cache.keep(entry("tiny"), "train", raw)
    assert rows.tolist() == [[0, 12], [3, 4]]
    assert not list(folder.glob("*.npz"))


@pytest.mark.parametrize("ending", [b"\n", b"", b"\r\n"])
@pytest.mark.parametrize("width", [1, 7, 8, 9, 64])
def test_every_width_comes_back_as_it_was(tmp_path: Path, width: int, ending: bytes) -> None:
    rows = np.random.default_rng(width).integers(0, 2, (5, width)).astype(np.uint8)
    lines = (b"\r\n" if ending == b"\r\n" else b"\n").join(b",".join(b"%d" % x for x in row) for row in rows)
    source = debd.blob_hash(lines + ending)
    cache._write_bits(tmp_path / "x.npz", rows)
    found = cache._read_bits(tmp_path / "x.npz", source, (5, width))
    assert found is not None
    np.testing.assert_array_equal(found, rows)
    assert cache._read_bits(tmp_path / "x.npz", source, (4, width)) is None
    assert cache._read_bits(tmp_path / "x.npz", debd.blob_hash(lines + b" "), (5, width)) is None
