"""A server on 127.0.0.1 that answers like Hugging Face and like ModelScope, and can be told to misbehave."""

from __future__ import annotations

import hashlib
import json
import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlparse

from cosyui.hub import needed_files

REPO = "maker/Fun-Voice-0.5B"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
EXTRAS = ("CosyVoice-BlankEN/model.safetensors", "flow.decoder.estimator.fp32.onnx", "README.md")
_LFS = (".pt", ".onnx", ".safetensors")


def model_files(seed: int = 0) -> dict[str, bytes]:
    """Content of a model repository: every needed file and some that must not be fetched."""
    rng = random.Random(seed)
    names = (*needed_files("llm.pt"), "llm.rl.pt", *EXTRAS)
    return {name: rng.randbytes(40_000 if name.endswith(_LFS) else 500) for name in names}


@dataclass
class FakeHubs:
    """``cut``: bytes after which the next transfer of a file breaks off; ``spoil``: transfers of it to damage."""

    files: dict[str, bytes] = field(default_factory=model_files)
    cut: dict[str, int] = field(default_factory=dict)
    spoil: dict[str, int] = field(default_factory=dict)
    listed_digest: dict[str, str] = field(default_factory=dict)
    ignore_range: bool = False
    broken: bool = False
    transfers: list[tuple[str, str | None]] = field(default_factory=list)
    requests: int = 0
    url: str = ""

    def transferred(self) -> set[str]:
        return {name for name, _ in self.transfers}

    def ranges(self, name: str) -> list[str | None]:
        return [wanted for found, wanted in self.transfers if found == name]

    def sha256(self, name: str) -> str:
        return self.listed_digest.get(name, hashlib.sha256(self.files[name]).hexdigest())

    def blob_id(self, name: str) -> str:
        content = self.files[name]
        return hashlib.sha1(f"blob {len(content)}\0".encode() + content).hexdigest()

    def etag(self, name: str) -> str:
        return self.sha256(name) if name.endswith(_LFS) else self.blob_id(name)


@contextmanager
def serve() -> Iterator[FakeHubs]:
    hubs = FakeHubs()

    class Handler(_Handler):
        state = hubs

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    hubs.url = f"http://127.0.0.1:{server.server_address[1]}"
    try:
        yield hubs
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    state: FakeHubs
    protocol_version = "HTTP/1.1"

    def log_message(self, *_args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(body=False)

    def do_GET(self) -> None:
        self._answer(body=True)

    def _answer(self, *, body: bool) -> None:
        self.state.requests += 1
        url = urlparse(self.path)
        path = unquote(url.path)
        query = {key: values[0] for key, values in parse_qs(url.query).items()}
        if self.state.broken:
            self._json(500, {"error": "out of order"})
        elif path in (f"/api/models/{REPO}", f"/api/models/{REPO}/revision/main"):
            self._json(200, self._hf_listing())
        elif path.startswith(f"/{REPO}/resolve/"):
            self._file(path.split("/", 5)[5], body=body)
        elif path == f"/api/v1/models/{REPO}/repo/files":
            self._json(200, self._modelscope_listing())
        elif path == f"/api/v1/models/{REPO}/repo":
            self._file(query.get("FilePath", ""), body=body)
        elif path.startswith("/api/v1/"):
            self._json(404, {"Code": 10010205001, "Success": False, "Message": "record not found"})
        else:
            self._json(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})

    def _hf_listing(self) -> dict[str, Any]:
        siblings = []
        for name, content in self.state.files.items():
            entry: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": self.state.blob_id(name)}
            if name.endswith(_LFS):
                entry["lfs"] = {"sha256": self.state.sha256(name), "size": len(content), "pointerSize": 130}
            siblings.append(entry)
        return {"_id": "1", "id": REPO, "modelId": REPO, "sha": COMMIT, "tags": [], "siblings": siblings}

    def _modelscope_listing(self) -> dict[str, Any]:
        files: list[dict[str, Any]] = [{"Path": "CosyVoice-BlankEN", "Type": "tree", "Size": 0}]
        for name, content in self.state.files.items():
            files.append({"Path": name, "Type": "blob", "Size": len(content), "Sha256": self.state.sha256(name)})
        return {"Code": 200, "Success": True, "Data": {"Files": files}}

    def _file(self, name: str, *, body: bool) -> None:
        content = self.state.files.get(name)
        if content is None:
            self._json(404, {"error": "Entry not found"}, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": COMMIT})
            return
        wanted = None if self.state.ignore_range else self.headers.get("Range")
        start = int(wanted.removeprefix("bytes=").split("-")[0]) if wanted else 0
        self.send_response(206 if wanted else 200)
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.send_header("Content-Length", str(len(content) - start))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{self.state.etag(name)}"')
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if body:
            self.state.transfers.append((name, self.headers.get("Range")))
            self._send(name, content, start)

    def _send(self, name: str, content: bytes, start: int) -> None:
        if self.state.spoil.get(name, 0) > 0:
            self.state.spoil[name] -= 1
            content = content[:-1] + bytes([content[-1] ^ 1])
        if name in self.state.cut:
            self.wfile.write(content[start : self.state.cut.pop(name)])
            self.close_connection = True
            return
        self.wfile.write(content[start:])

    def _json(self, status: int, content: dict[str, Any], headers: dict[str, str] | None = None) -> None:
        payload = json.dumps(content).encode()
        self.send_response(status)
        for key, value in (headers or {}).items():
            self.send_header(key, value)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(payload)
