"""A small collection like DEBD on a local HTTP server that can also fail in all the usual ways."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np

from circurve.data.debd import SPLITS, DebdSet, blob_hash, relative_path

ROWS = {"train": 60, "valid": 7, "test": 11}


def content(name: str, split: str, variables: int = 13) -> bytes:
    """Random bits in the collection's format, the same for the same name."""
    generator = np.random.default_rng([*name.encode(), SPLITS.index(split)])
    rows = generator.integers(0, 2, (ROWS[split], variables))
    return "".join(",".join(map(str, row)) + "\n" for row in rows).encode()


def flipped(body: bytes) -> bytes:
    """The same with its first bit changed: still a table of bits."""
    return bytes([body[0] ^ 1]) + body[1:]


def entry(name: str, variables: int = 13) -> DebdSet:
    train, valid, test = (blob_hash(content(name, split, variables)) for split in SPLITS)
    return DebdSet(name, variables, (60, 7, 11), (train, valid, test), reported=False)


@dataclass
class Server:
    """Where it is, what it was asked for, and how it answers: `how` maps a split to a way to fail."""

    url: str
    how: dict[str, str] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)


@contextmanager
def serving(*names: str) -> Iterator[Server]:
    """Serve the named sets until the block ends."""
    files = {f"/{relative_path(name, split)}": (split, content(name, split)) for name in names for split in SPLITS}

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked.append(self.path)
            split, body = files.get(self.path, ("", b""))
            _answer(self, body, server.how.get(split, "right" if body else "404"))

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        server = Server(f"http://127.0.0.1:{http.server_port}")
        thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield server
        finally:
            http.shutdown()
            thread.join()


def _answer(handler: BaseHTTPRequestHandler, body: bytes, how: str) -> None:
    if how.isdigit():
        handler.send_error(int(how))
        return
    if how == "hangs up":
        handler.close_connection = True
        return
    if how in ("endless", "endless, packed"):
        _answer_without_end(handler, packed=how.endswith("packed"))
        return
    sent = {"interrupted": body[: len(body) // 2], "changed": flipped(body), "empty": b""}.get(how, body)
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(body) if how == "interrupted" else len(sent)))
    handler.end_headers()
    handler.wfile.write(sent)


def _answer_without_end(handler: BaseHTTPRequestHandler, packed: bool) -> None:
    """Zeros for as long as the other side takes them, or 64 MB of them in a few kilobytes."""
    handler.send_response(200)
    if packed:
        handler.send_header("Content-Encoding", "gzip")
    handler.end_headers()
    piece = gzip.compress(bytes(64 << 20)) if packed else bytes(1 << 16)
    with suppress(OSError):
        while True:
            handler.wfile.write(piece)
            if packed:
                return
