"""A Data-Juicer service that speaks Trinity-RFT's protocol, as a program for the Python that has py-data-juicer.

    GET  /health                                        whether it answers
    POST /create              {operators, config_path, np} ──▶ {session_id}
    POST /process_experience  session_id, rows as an Arrow stream ──▶ rows, with numbers in the header X-Metrics
    POST /close               {session_id}

It imports only what py-data-juicer brings. It ends with the process that started it, and listens on this machine only by default.
Operators can run code: with RLCTL_JUICER_TOKEN in its environment it answers only requests that bear that token.
"""

from __future__ import annotations

import argparse
import email.parser
import email.policy
import hmac
import io
import json
import os
import tempfile
import threading
import traceback
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

TOKEN = os.environ.get("RLCTL_JUICER_TOKEN", "")
PARENT_SECONDS = 2.0
"""How often it looks whether the process that started it is still there."""
ROWS = ("dataset_path", "dataset", "generated_dataset_config")
"""Keys of a file that say where its rows are: a request brings the rows, and the executor would open these first."""


class Sessions:
    """What clients have created. Data-Juicer works on one request at a time: it has state of its own."""

    def __init__(self) -> None:
        self._configs: dict[str, Any] = {}
        self._one = threading.Lock()

    def create(self, asked: dict[str, Any]) -> str:
        """Read operators as Data-Juicer does."""
        from data_juicer.config import get_init_configs, prepare_side_configs
        from jsonargparse import Namespace

        if asked.get("config_path"):
            wanted = {
                key: value for key, value in prepare_side_configs(asked["config_path"]).items() if key not in ROWS
            }
        else:
            wanted = Namespace(process=list(asked["operators"]), np=int(asked.get("np") or 1))
        with self._one:
            config = get_init_configs(wanted)
        name = str(uuid.uuid4())
        self._configs[name] = config
        return name

    def __contains__(self, name: object) -> bool:
        return name in self._configs

    def process(self, name: str, stream: bytes) -> bytes:
        """Run a session's operators on rows."""
        import pyarrow as pa
        from data_juicer.core.data import NestedDataset
        from data_juicer.core.executor.default_executor import DefaultExecutor
        from datasets import Dataset

        with pa.ipc.open_stream(io.BytesIO(stream)) as reader:
            rows = Dataset(reader.read_all())
        with self._one:
            result = DefaultExecutor(cfg=self._configs[name]).run(NestedDataset(rows), skip_export=True)
        table = result.flatten_indices().data.table
        written = io.BytesIO()
        with pa.ipc.new_stream(written, table.schema) as writer:
            writer.write_table(table)
        return written.getvalue()

    def close(self, name: str) -> None:
        """Forget a session."""
        del self._configs[name]


class Handler(BaseHTTPRequestHandler):
    """One request."""

    sessions = Sessions()

    def do_GET(self) -> None:
        """Answer /health."""
        self._say(200 if self.path == "/health" else 404, {"status": "ok"})

    def do_POST(self) -> None:
        """Answer the others."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        expected = f"Bearer {TOKEN}"
        if TOKEN and not hmac.compare_digest(self.headers.get("Authorization", "").encode(), expected.encode()):
            self._say(401, {"error": "the request needs the token of this service"})
            return
        calls = {"/create": self._create, "/process_experience": self._process, "/close": self._close}
        call = calls.get(self.path)
        if call is None:
            self._say(404, {"error": f"there is no {self.path}"})
            return
        try:
            call(body)
        except Exception:  # noqa: BLE001  # whatever an operator raises is what the client shows
            self._say(500, {"error": traceback.format_exc()})

    def _create(self, body: bytes) -> None:
        asked = json.loads(body)
        if not (asked.get("operators") or asked.get("config_path")):
            self._say(400, {"error": "one of operators and config_path is needed"})
            return
        self._say(200, {"session_id": self.sessions.create(asked)})

    def _process(self, body: bytes) -> None:
        parts = self._parts(body)
        name = parts.get("session_id", b"").decode()
        if name not in self.sessions:
            self._say(404, {"error": "Session ID not found."})
            return
        answer = self.sessions.process(name, parts["arrow_data"])
        self.send_response(200)
        self.send_header("X-Metrics", json.dumps({}))
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def _close(self, body: bytes) -> None:
        name = json.loads(body).get("session_id")
        if name not in self.sessions:
            self._say(404, {"error": "Session ID not found."})
            return
        self.sessions.close(name)
        self._say(200, {"message": "closed"})

    def _parts(self, body: bytes) -> dict[str, bytes]:
        """The parts of a form, by name."""
        head = f"Content-Type: {self.headers['Content-Type']}\r\n\r\n".encode()
        message = email.parser.BytesParser(policy=email.policy.HTTP).parsebytes(head + body)
        found = {}
        for part in message.iter_parts():
            name = part.get_param("name", header="content-disposition")
            found[str(name)] = bytes(part.get_payload(decode=True))
        return found

    def _say(self, status: int, answer: dict[str, Any]) -> None:
        content = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: Any) -> None:
        """Write nothing for each request."""


def _end_with(parent: int) -> None:
    """Leave when the process that started this one is gone."""
    stopped = threading.Event()
    while os.getppid() == parent:
        stopped.wait(PARENT_SECONDS)
    os._exit(0)


def main() -> None:
    """Serve until the parent ends."""
    arguments = argparse.ArgumentParser(description="Data-Juicer for rlctl")
    arguments.add_argument("--host", default="127.0.0.1", help="anyone who reaches it can run operators")
    arguments.add_argument("--port", type=int, required=True)
    arguments.add_argument("--parent", type=int, default=None, help="end with this process")
    chosen = arguments.parse_args()
    if chosen.parent is not None:
        threading.Thread(target=_end_with, args=(chosen.parent,), daemon=True).start()
    else:
        os.chdir(tempfile.mkdtemp(prefix="rlctl-juicer-"))  # Data-Juicer writes its results and logs where it runs
    import data_juicer.config  # noqa: F401  # without Data-Juicer it ends here, before a client sends rows

    ThreadingHTTPServer((chosen.host, chosen.port), Handler).serve_forever()


if __name__ == "__main__":
    main()
