"""Facts about the public collection DEBD: its sets, their sizes, and the git blob hash of every file."""

from __future__ import annotations

import csv
import hashlib
import os
from dataclasses import dataclass
from importlib import resources

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "COLLECTION",
    "DEBD",
    "SPLITS",
    "URL_VARIABLE",
    "DebdSet",
    "blob_hash",
    "file_url",
    "is_text_of",
    "relative_path",
]

COMMIT = "850908666388f1b1c766a304b37dae14613f1e51"
REPOSITORY = "https://github.com/arranger1044/DEBD"
RAW_URL = f"https://raw.githubusercontent.com/arranger1044/DEBD/{COMMIT}"
URL_VARIABLE = "CIRCURVE_DEBD_URL"
"""The environment variable that names another place with the same files, such as a mirror."""

SPLITS = ("train", "valid", "test")


@dataclass(frozen=True)
class DebdSet:
    """One set of the collection, as published."""

    name: str
    variables: int
    rows: tuple[int, int, int]
    blobs: tuple[str, str, str]
    """The git blob hashes of the three files."""

    reported: bool
    """Whether it is one of the 20 that papers compare on."""

    def blob(self, split: str) -> str:
        """The git blob hash of one file."""
        return self.blobs[SPLITS.index(split)]


def blob_hash(content: bytes) -> str:
    """What git calls a file with this content: SHA-1 of `blob SIZE`, a zero byte, and the content."""
    # not for security: git names files by this hash, and it is the only hash that the collection has
    return hashlib.sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).hexdigest()


def is_text_of(rows: NDArray[np.uint8], source: str) -> bool:  # (N, V)
    """Whether these zeros and ones, written as the collection writes them, are the text with the git blob hash."""
    text = np.full((len(rows), 2 * rows.shape[1]), ord(","), dtype=np.uint8)
    text[:, ::2] = rows + np.uint8(ord("0"))
    text[:, -1] = ord("\n")
    content = text.tobytes()
    return source in (blob_hash(content), blob_hash(content[:-1]), blob_hash(content.replace(b"\n", b"\r\n")))


def relative_path(name: str, split: str) -> str:
    """The path of a file in the collection."""
    return f"datasets/{name}/{name}.{split}.data"


def file_url(name: str, split: str) -> str:
    """Where a file is downloaded from: GitHub, or the place that CIRCURVE_DEBD_URL names."""
    base = os.environ.get(URL_VARIABLE) or RAW_URL
    return f"{base.rstrip('/')}/{relative_path(name, split)}"


def _read_facts() -> dict[str, DebdSet]:
    text = resources.files("circurve.data").joinpath("debd.tsv").read_text("utf-8")
    rows = csv.DictReader((line for line in text.splitlines() if not line.startswith("#")), delimiter="\t")
    return {
        row["name"]: DebdSet(
            name=row["name"],
            variables=int(row["variables"]),
            rows=(int(row["train"]), int(row["valid"]), int(row["test"])),
            blobs=(row["train_blob"], row["valid_blob"], row["test_blob"]),
            reported=row["reported"] == "yes",
        )
        for row in rows
    }


COLLECTION: dict[str, DebdSet] = _read_facts()
"""All sets by name, in alphabetical order."""

DEBD = tuple(name for name, entry in COLLECTION.items() if entry.reported)
"""The 20 sets that papers report."""
