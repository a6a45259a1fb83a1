"""The cache folder: downloaded files as they came, and beside each the same rows as packed bits.

The layout below `debd/` is that of the collection, so the folder may also be given as `data_dir`.
"""

from __future__ import annotations

import io
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import numpy as np

from circurve.data.convert import Array
from circurve.data.debd import SPLITS, DebdSet, blob_hash, relative_path
from circurve.data.text import parse_text

__all__ = ["CACHE_VARIABLE", "cache_folder", "is_cached", "keep", "recall", "replacing", "text_path"]

CACHE_VARIABLE = "CIRCURVE_CACHE"
"""The environment variable that names another cache folder."""


def cache_folder() -> Path:
    """The folder that CIRCURVE_CACHE names, or Circurve's own in the user's cache folder."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser()
    import pooch  # noqa: PLC0415 - only needed for downloads

    return Path(pooch.os_cache("circurve"))


def text_path(name: str, split: str) -> Path:
    """Where a downloaded file is kept."""
    return cache_folder() / "debd" / relative_path(name, split)


def is_cached(name: str) -> bool:
    """Whether all files of a set are there, as text or as bits; their content is not looked at."""
    texts = [text_path(name, split) for split in SPLITS]
    return all(_bits_path(text).is_file() or text.is_file() for text in texts)


def recall(entry: DebdSet, split: str) -> Array | None:  # (N, V)
    """The rows of one file from the cache; None if it is not there, or not what the collection holds."""
    text = text_path(entry.name, split)
    rows = _read_bits(_bits_path(text), entry.blob(split))
    if rows is not None:
        return rows
    try:
        raw = text.read_bytes()
    except OSError:
        return None
    return keep(entry, split, raw) if blob_hash(raw) == entry.blob(split) else None


def keep(entry: DebdSet, split: str, raw: bytes) -> Array:  # (N, V)
    """The rows of a file whose content is right, packed beside it for the next time, if that can be written."""
    text = text_path(entry.name, split)
    rows = parse_text(raw, text, header=False).values.numpy()
    if rows.dtype == np.uint8 and rows.max() <= 1:
        with suppress(OSError):
            _write_bits(_bits_path(text), rows, entry.blob(split))
    return rows


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A file beside the target, to be written: it takes the target's name if all goes well, and is gone if not.

    Each caller has a file of its own, so two processes that write the same target do not meet.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        yield part
        os.replace(part, target)
    finally:
        with suppress(OSError):
            part.unlink()


def _bits_path(text: Path) -> Path:
    return text.with_suffix(".bits.npz")


def _write_bits(path: Path, rows: Array, source: str) -> None:
    content = io.BytesIO()
    np.savez(content, bits=np.packbits(rows, axis=1), shape=np.array(rows.shape), source=np.array(source))
    with replacing(path) as part:
        part.write_bytes(content.getvalue())


def _read_bits(path: Path, source: str) -> Array | None:
    """The rows packed in a file; None if it is damaged or was made from another text. The archive has checksums."""
    try:
        with np.load(path, allow_pickle=False) as loaded:
            bits, (count, width) = loaded["bits"], loaded["shape"].tolist()
            if str(loaded["source"]) != source or bits.dtype != np.uint8 or bits.shape != (count, -(-width // 8)):
                return None
            return np.unpackbits(bits, axis=1, count=width)
    except Exception:  # numpy and zipfile raise whatever the damage trips over; the text is still there
        return None
