"""The cache folder: files of DEBD as they were downloaded, and next to each the same rows as packed bits.

Each file is checked before it takes its name, and again when it is read: text by its hash, bits by the hash of the text
that they represent. The layout below `debd/` is that of the collection, so the folder may
also be given as `data_dir`.
"""

from __future__ import annotations

import os
import secrets
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

import numpy as np

from circurve.data.array_files import read_npz
from circurve.data.convert import Array
from circurve.data.debd import REPOSITORY, SPLITS, DebdSet, blob_hash, file_url, is_text_of, relative_path
from circurve.data.text import parse_text
from circurve.errors import Argument, DownloadError, FileAccessError, needs

__all__ = ["cache_folder", "fetch", "is_cached", "keep", "recall", "replacing"]

CACHE_VARIABLE = "CIRCURVE_CACHE"
"""The environment variable that names another cache folder."""

BITS = ".bits.npz"
BITS_OVERHEAD = 4096
"""Bytes that an archive of packed bits may have in addition to the bits."""

CHUNK = 1 << 16
TIMEOUT = 30
"""Seconds without a byte from the server before a download is given up."""

MAX_EXCESS = 2
"""How many times the length that a file of the collection should have a download may have, before it is given up."""

BY_HAND = (f"get the collection yourself: git clone {REPOSITORY}, then pass ", Argument("data_dir", "DEBD"))


def cache_folder() -> Path:
    """The folder that CIRCURVE_CACHE names, or Circurve's own in the user's cache folder."""
    if chosen := os.environ.get(CACHE_VARIABLE):
        return Path(chosen).expanduser()
    with needs("data", "the cache of data sets"):
        import platformdirs  # noqa: PLC0415 - only needed for downloads

    return Path(platformdirs.user_cache_dir("circurve"))


def text_path(name: str, split: str) -> Path:
    """Where a downloaded file is kept."""
    return cache_folder() / "debd" / relative_path(name, split)


def is_cached(name: str) -> bool:
    """Whether all files of a set are there, as text or as bits; their content is not looked at."""
    texts = [text_path(name, split) for split in SPLITS]
    return all(text.with_suffix(BITS).is_file() or text.is_file() for text in texts)


def recall(entry: DebdSet, split: str) -> Array | None:  # (N, V)
    """The rows of one file from the cache; None if it is not there, or not what the collection holds."""
    text = text_path(entry.name, split)
    shape = (entry.rows[SPLITS.index(split)], entry.variables)
    if (rows := _read_bits(text.with_suffix(BITS), entry.blob(split), shape)) is not None:
        return rows
    try:
        raw = text.read_bytes()
    except OSError:
        return None
    return keep(entry, split, raw) if blob_hash(raw) == entry.blob(split) else None


def keep(entry: DebdSet, split: str, raw: bytes) -> Array:  # (N, V)
    """The rows of a file whose content is right; a packed copy is written next to it for the next time, if possible."""
    text = text_path(entry.name, split)
    rows = parse_text(raw, text, header=False).values.numpy()
    if rows.dtype == np.uint8 and rows.max() <= 1 and is_text_of(rows, entry.blob(split)):
        with suppress(OSError):
            _write_bits(text.with_suffix(BITS), rows)
    return rows


@contextmanager
def replacing(target: Path) -> Iterator[Path]:
    """A temporary file next to the target: renamed to the target if all goes well, and removed if not.

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


def _write_bits(path: Path, rows: Array) -> None:
    with replacing(path) as part, part.open("wb") as file:
        np.savez(file, bits=np.packbits(rows, axis=1))


def _read_bits(path: Path, source: str, shape: tuple[int, int]) -> Array | None:
    """The rows packed in a file; None if it is damaged, or if they are not the rows of the text with the hash `source`.

    shape: the rows and columns of the text; nothing larger is read.
    """
    packed = (shape[0], -(-shape[1] // 8))
    try:
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size > packed[0] * packed[1] + BITS_OVERHEAD:
                return None
            bits = read_npz(file, size, trust=False)["bits"]
        if bits.dtype != np.uint8 or bits.shape != packed:
            return None
        rows: Array = np.unpackbits(bits, axis=1, count=shape[1])
    except Exception:  # numpy and zipfile raise many kinds of errors for damaged files; the text is still there
        return None
    return rows if is_text_of(rows, source) else None


def fetch(entry: DebdSet) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The rows of each split, (N, V), and the splits that had to be downloaded: those that the cache lacks."""
    parts = {split: recall(entry, split) for split in SPLITS}
    lacking = tuple(split for split, rows in parts.items() if rows is None)
    if lacking:
        with _progress() as progress:
            for split in lacking:
                parts[split] = keep(entry, split, _download(entry, split, progress))
    return {split: rows for split, rows in parts.items() if rows is not None}, lacking


def _download(entry: DebdSet, split: str, progress: Any) -> bytes:
    """The content of one file, which is then in the cache; if anything goes wrong, nothing is."""
    with needs("data", "downloading a data set"):
        import requests  # noqa: PLC0415 - slow to import, and only needed here

    url, target = file_url(entry.name, split), text_path(entry.name, split)
    most = MAX_EXCESS * 2 * entry.variables * entry.rows[SPLITS.index(split)]  # a digit and a separator for each value
    try:
        with replacing(target) as part:
            with requests.get(url, stream=True, timeout=TIMEOUT) as response, part.open("wb") as file:
                response.raise_for_status()
                task = progress.add_task(target.name, total=_announced(response.headers.get("content-length", "")))
                for chunk in response.iter_content(CHUNK):
                    file.write(chunk)
                    if file.tell() > most:
                        wrong = f"it has more than {most:,} bytes; it was deleted; try again later, or "
                        raise DownloadError(f"{url} is not the file of the collection: {wrong}", *BY_HAND)
                    progress.update(task, completed=response.raw.tell())  # bytes on the wire, maybe compressed
            content = part.read_bytes()
            _check(content, entry.blob(split), url)
    except requests.RequestException as error:
        raise DownloadError(f"cannot download {url}: {_reason(error)}; try again later, or ", *BY_HAND) from error
    except DownloadError:
        raise
    except OSError as error:
        raise FileAccessError(
            f"cannot write {target}: {error.strerror or error}; free some space there, set the environment variable "
            f"{CACHE_VARIABLE} to another folder, or ",
            *BY_HAND,
        ) from error
    return content


def _announced(length: str) -> int | None:
    """The length that a server announces, for the progress bar only; None if it announces none."""
    return int(length) if length.isascii() and length.isdigit() and 0 < len(length) < 16 and int(length) else None


def _check(content: bytes, expected: str, url: str) -> None:
    found = blob_hash(content)
    if found != expected:
        wrong = f"its git blob hash is {found}, not {expected}; it was deleted; try again later, or "
        raise DownloadError(f"{url} is not the file of the collection: {wrong}", *BY_HAND)


def _reason(error: Exception) -> str:
    """What went wrong, in words; the messages of requests hold memory addresses and nested brackets."""
    import requests  # noqa: PLC0415

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}".rstrip()
    words = {
        requests.Timeout: "the server did not answer in time",
        requests.exceptions.ChunkedEncodingError: "the transfer was interrupted",
        requests.exceptions.ContentDecodingError: "the transfer was interrupted",
        requests.ConnectionError: f"no connection ({type(error).__name__})",
    }
    return next((text for kind, text in words.items() if isinstance(error, kind)), str(error))


def _progress() -> Any:
    """Progress bars on standard error, for people only: none if standard error is not a terminal."""
    with needs("data", "downloading a data set"):
        from rich.console import Console  # noqa: PLC0415 - only needed here
        from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    shown = sys.stderr.isatty()
    progress = Progress(*columns, console=Console(stderr=True), transient=True, disable=not shown)
    return progress if shown else nullcontext(progress)  # rich before 15 ends what it has not shown with an empty line
