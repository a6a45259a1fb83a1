"""Sets of DEBD over the network: each file is checked before it takes its name in the cache."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias

from circurve.data import cache
from circurve.data.convert import Array
from circurve.data.debd import REPOSITORY, SPLITS, DebdSet, blob_hash, file_url
from circurve.errors import DownloadError, FileAccessError

__all__ = ["fetch"]

CHUNK = 1 << 16
BY_HAND = f"get the collection by hand: git clone {REPOSITORY}, then say data_dir='DEBD' (--data-dir DEBD)"

NewBar: TypeAlias = Callable[[str], Any]
"""Makes the progress bar of one file, as pooch wants it; False for none."""


def fetch(entry: DebdSet) -> tuple[dict[str, Array], tuple[str, ...]]:
    """The rows of each split, (N, V), and the splits that had to be downloaded: those that the cache lacks."""
    parts = {split: cache.recall(entry, split) for split in SPLITS}
    lacking = tuple(split for split, rows in parts.items() if rows is None)
    if lacking:
        with _bars() as new_bar:
            for split in lacking:
                parts[split] = cache.keep(entry, split, _download(entry, split, new_bar))
    return {split: rows for split, rows in parts.items() if rows is not None}, lacking


def _download(entry: DebdSet, split: str, new_bar: NewBar) -> bytes:
    """The content of one file, which is then in the cache; if anything goes wrong, nothing is."""
    from pooch import HTTPDownloader  # noqa: PLC0415 - slow to import, and only needed here
    from requests import RequestException  # noqa: PLC0415

    url, target = file_url(entry.name, split), cache.text_path(entry.name, split)
    try:
        with cache.replacing(target) as part:
            HTTPDownloader(progressbar=new_bar(target.name), chunk_size=CHUNK)(url, str(part), None)
            content = part.read_bytes()
            _check(content, entry.blob(split), url)
    except RequestException as error:
        raise DownloadError(f"cannot download {url}: {_reason(error)}; try again later, or {BY_HAND}") from error
    except DownloadError:
        raise
    except OSError as error:
        raise _not_kept(target, error) from error
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


def _not_kept(target: Path, error: OSError) -> FileAccessError:
    return FileAccessError(
        f"cannot write {target}: {error.strerror or error}; make room there, name another folder in the environment "
        f"variable {cache.CACHE_VARIABLE}, or {BY_HAND}"
    )


class _Bar:
    """What pooch calls while a file comes in, shown by rich."""

    def __init__(self, progress: Any, label: str) -> None:
        self.progress, self.task = progress, progress.add_task(label, total=None)
        self._total = 0

    @property
    def total(self) -> int:
        """How many bytes will come; 0 if the server does not say."""
        return self._total

    @total.setter
    def total(self, count: int) -> None:
        self._total = count
        self.progress.update(self.task, total=count or None)

    def update(self, count: int) -> None:
        """So many more bytes."""
        self.progress.update(self.task, advance=count)

    def reset(self) -> None:
        """Back to none; pooch says so before it fills the bar."""
        self.progress.update(self.task, completed=0)

    def close(self) -> None:
        """Nothing to do: the bars of all files close together."""


@contextmanager
def _bars() -> Iterator[NewBar]:
    """Progress bars on standard error, for people only: none where that is not a terminal."""
    if not sys.stderr.isatty():
        yield lambda _: False
        return
    from rich.console import Console  # noqa: PLC0415 - only needed when someone is looking
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn  # noqa: PLC0415

    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
        yield lambda label: _Bar(progress, label)
