"""A hub on loopback: the few routes that `huggingface_hub` needs to create, push and load.

Weights (`*.safetensors`) go the way of large files, all else within the commit, as on the real one.
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_thisIsASecretOfTheTests"


@dataclass
class Repository:
    """One repository: its files at every commit, newest last."""

    private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    messages: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.commits:
            self.commit({".gitattributes": b"*.safetensors filter=lfs\n"}, "initial commit")

    @property
    def head(self) -> str:
        """The newest commit."""
        return list(self.commits)[-1]

    @property
    def files(self) -> dict[str, bytes]:
        """The newest files."""
        return self.commits[self.head]

    def commit(self, files: dict[str, bytes], message: str) -> str:
        """Add a commit."""
        text = f"{len(self.commits)} {message} {sorted(files)}"
        oid = hashlib.sha1(text.encode()).hexdigest()
        self.commits[oid] = dict(files)
        self.messages.append(message)
        return oid

    def at(self, revision: str) -> tuple[str, dict[str, bytes]] | None:
        """Return the commit and the files of a revision."""
        oid = self.head if revision == "main" else revision
        return (oid, self.commits[oid]) if oid in self.commits else None


@dataclass
class FakeHub:
    """What there is, and what was asked."""

    url: str
    repositories: dict[tuple[str, str], Repository] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)

    def model(self, name: str) -> Repository:
        """Return a repository of models."""
        return self.repositories["model", name]

    def dataset(self, name: str) -> Repository:
        """Return a repository of data sets."""
        return self.repositories["dataset", name]


class _Reply(Exception):
    def __init__(self, status: int, body: Any = None, **headers: str) -> None:
        super().__init__(status)
        self.status, self.body = status, body
        self.headers = {name.replace("_", "-"): value for name, value in headers.items()}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: FakeHub

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length") or 0))
        path = unquote(urlsplit(self.path).path)
        self.hub.asked.append((self.command, path))
        try:
            self._route(path.strip("/").split("/"), body)
            reply = _Reply(404, {"error": "no such route"})
        except _Reply as found:
            reply = found
        data = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
        self.send_response(reply.status)
        for name, value in {"content-length": str(len(data)), **reply.headers}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_HEAD = _answer

    def log_message(self, format: str, *args: object) -> None:
        """Keep the test's output clean."""

    @property
    def _may_write(self) -> bool:
        return self.headers.get("authorization") == f"Bearer {TOKEN}"

    def _route(self, parts: list[str], body: bytes) -> None:
        if parts[:1] == ["upload"]:
            assert hashlib.sha256(body).hexdigest() == parts[1]
            self.hub.blobs[parts[1]] = body
            raise _Reply(200, {})
        if parts == ["api", "validate-yaml"]:
            raise _Reply(200, {"errors": [], "warnings": []})
        if parts[:3] == ["api", "repos", "create"]:
            self._create(json.loads(body))
        if parts[0] == "api" and parts[1] in ("models", "datasets"):
            self._api(parts[1][:-1], "/".join(parts[2:4]), parts[4:], body)
        if parts[2:] == ["info", "lfs", "objects", "batch"]:
            self._batch(json.loads(body))
        kind = "dataset" if parts[0] == "datasets" else "model"
        rest = parts[1:] if kind == "dataset" else parts
        if len(rest) >= 5 and rest[2] == "resolve":
            self._resolve(self._find(kind, "/".join(rest[:2])), rest[3], "/".join(rest[4:]))

    def _create(self, asked: dict[str, Any]) -> None:
        if not self._may_write:
            raise _Reply(401, {"error": "Invalid username or password."})
        name, kind = f"{asked['organization']}/{asked['name']}", asked.get("type", "model")
        if (kind, name) in self.hub.repositories:
            raise _Reply(409, {"error": "You already created this repo"})
        self.hub.repositories[kind, name] = Repository(asked.get("visibility") == "private")
        raise _Reply(200, {"url": f"{self.hub.url}/{name}"})

    def _find(self, kind: str, name: str) -> Repository:
        found = self.hub.repositories.get((kind, name))
        if found is None or (found.private and not self._may_write):
            raise _Reply(404, {"error": "Repository not found"}, X_Error_Code="RepoNotFound")
        return found

    def _api(self, kind: str, name: str, rest: list[str], body: bytes) -> None:
        found = self._find(kind, name)
        if rest[:1] == ["preupload"] and self._may_write:
            raise _Reply(200, {"files": [_mode(one["path"]) for one in json.loads(body)["files"]]})
        if rest[:1] == ["commit"] and self._may_write:
            self._commit(found, name, [json.loads(line) for line in body.splitlines()])
        at = found.at(rest[1] if len(rest) > 1 else "main")
        if at is None:
            raise _Reply(404, {"error": "Invalid rev id"}, X_Error_Code="RevisionNotFound")
        if rest[:1] == ["tree"]:
            raise _Reply(200, [_entry(path, data) for path, data in at[1].items()])
        if rest[:1] in ([], ["revision"]):
            names = [{"rfilename": path} for path in at[1]]
            about = {"id": name, "sha": at[0], "private": found.private, "tags": []}
            raise _Reply(200, {**about, "siblings": names, "downloads": 0, "likes": 0})

    def _commit(self, found: Repository, name: str, lines: list[dict[str, Any]]) -> None:
        header = lines[0]["value"]
        if header.get("parentCommit", found.head) != found.head:
            raise _Reply(412, {"error": "A commit has happened since."})
        files = dict(found.files)
        for line in lines[1:]:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.blobs[value["oid"]]
            else:
                assert line["key"] == "deletedFile", line["key"]
                del files[value["path"]]
        oid = found.commit(files, header["summary"])
        raise _Reply(200, {"commitUrl": f"{self.hub.url}/{name}/commit/{oid}", "commitOid": oid})

    def _batch(self, asked: dict[str, Any]) -> None:
        objects = [
            {**one, "actions": {"upload": {"href": f"{self.hub.url}/upload/{one['oid']}"}}}
            for one in asked["objects"]
        ]
        raise _Reply(200, {"transfer": "basic", "objects": objects})

    def _resolve(self, found: Repository, revision: str, path: str) -> None:
        at = found.at(revision)
        if at is None or path not in at[1]:
            raise _Reply(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
        etag = _entry(path, at[1][path])["oid"]
        raise _Reply(200, at[1][path], X_Repo_Commit=at[0], ETag=f'"{etag}"')


def _mode(path: str) -> dict[str, Any]:
    large = path.endswith(".safetensors")
    return {"path": path, "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}


def _entry(path: str, data: bytes) -> dict[str, Any]:
    oid = hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()
    return {"type": "file", "path": path, "size": len(data), "oid": oid}


@contextmanager
def fake_hub() -> Iterator[FakeHub]:
    """Serve a hub until the body ends."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """A client that is gone is no error here."""

    handler = type("Handler", (_Handler,), {})
    server = Server(("127.0.0.1", 0), handler)
    handler.hub = FakeHub(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield handler.hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
