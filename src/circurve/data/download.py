"""Sets of DEBD over the network: each file is checked before it takes its name in the cache."""

from __future__ import annotations

import sys
from typing import Any

from circurve.data import cache
from circurve.data.convert import Array
from circurve.data.debd import REPOSITORY, SPLITS, DebdSet, blob_hash, file_url
from circurve.errors import DownloadError, FileAccessError

__all__ = ["fetch"]

CHUNK = 1 << 16
TIMEOUT = 30
"""Seconds without a byte from the server before a download is given up."""

BY_HAND = f"get the collection by hand: git clone {REPOSITORY}, then say data_dir='DEBD' (--data-dir DEBD)"


def fetch(entry: DebdSet) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The rows of each split, (N, V), and the splits that had to be downloaded: those that the cache lacks."""
    parts = {split: cache.recall(entry, split) for split in SPLITS}
    lacking = tuple(split for split, rows in parts.items() if rows is None)
    if lacking:
        with _progress() as progress:
            for split in lacking:
                parts[split] = cache.keep(entry, split, _download(entry, split, progress))
    return {split: rows for split, rows in parts.items() if rows is not None}, lacking


def _download(entry: DebdSet, split: str, progress: Any) -> bytes:
    """The content of one file, which is then in the cache; if anything goes wrong, nothing is."""
    import requests  # noqa: PLC0415 - slow to import, and only needed here

    url, target = file_url(entry.name, split), cache.text_path(entry.name, split)
    try:
        with cache.replacing(target) as part:
            with requests.get(url, stream=True, timeout=TIMEOUT) as response, part.open("wb") as file:
                response.raise_for_status()
                task = progress.add_task(target.name, total=int(response.headers.get("content-length", 0)) or None)
                for chunk in response.iter_content(CHUNK):
                    file.write(chunk)
                    progress.update(task, completed=response.raw.tell())  # bytes on the wire, maybe compressed
            content = part.read_bytes()
            _check(content, entry.blob(split), url)
    except requests.RequestException as error:
        raise DownloadError(f"cannot download {url}: {_reason(error)}; try again later, or {BY_HAND}") from error
    except DownloadError:
        raise
    except OSError as error:
        raise FileAccessError(
            f"cannot write {target}: {error.strerror or error}; make room there, name another folder in the "
            f"environment variable {cache.CACHE_VARIABLE}, or {BY_HAND}"
        ) from error
    return content


def _check(content: bytes, expected: str, url: str) -> None:
    found = blob_hash(content)
    if found != expected:
        raise DownloadError(
            f"{url} is not the file of the collection: its git blob hash is {found}, not {expected}; nothing was kept; "
            f"try again later, or {BY_HAND}"
        )


def _reason(error: Exception) -> str:
    """What went wrong, in words; the messages of requests hold memory addresses and nested brackets."""
    import requests  # noqa: PLC0415

    if isinstance(error, requests.HTTPError) and error.response is not None:
        return f"the server answered {error.response.status_code} {error.response.reason}".rstrip()
    if isinstance(error, requests.Timeout):
        return "the server did not answer in time"
    if isinstance(error, requests.exceptions.ChunkedEncodingError | requests.exceptions.ContentDecodingError):
        return "the transfer broke off"
    if isinstance(error, requests.ConnectionError):
        return f"no connection ({type(error).__name__})"
    return str(error)


def _progress() -> Any:
    """Progress bars on standard error, for people only: none where that is not a terminal."""
    from rich.console import Console  # noqa: PLC0415 - only needed here
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    return Progress(*columns, console=Console(stderr=True), transient=True, disable=not sys.stderr.isatty())
