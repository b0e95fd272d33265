"""Real services on this machine: one that answers as an OpenAI-compatible endpoint does, and one that runs code."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

Answer = Callable[[dict[str, Any]], tuple[int, Any]]


@dataclass
class Served:
    """A service under way and what it was asked."""

    url: str = ""
    bodies: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    at_once: int = 0
    most_at_once: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)


@contextmanager
def serve(answer: Answer) -> Iterator[Served]:
    """Answer every POST with what ``answer`` makes of its JSON: a status, and JSON or text."""
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with served.lock:
                served.bodies.append({"path": self.path, **body})
                served.headers.append(dict(self.headers))
                served.at_once += 1
                served.most_at_once = max(served.most_at_once, served.at_once)
            status, found = answer(body)
            with served.lock:
                served.at_once -= 1
            text = found if isinstance(found, str) else json.dumps(found)
            try:
                self.send_response(status)
                self.send_header("Content-Length", str(len(text.encode())))
                self.end_headers()
                self.wfile.write(text.encode())
            except OSError:
                return  # the client is gone

        def log_message(self, *args: Any) -> None:
            return

    class Server(ThreadingHTTPServer):
        request_queue_size = 128
        daemon_threads = True

    server = Server(("127.0.0.1", 0), Handler)
    served.url = f"http://127.0.0.1:{server.server_port}"
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    try:
        yield served
    finally:
        server.shutdown()
        server.server_close()


def meeting(count: int, answer: Any) -> Answer:
    """Answers that wait for each other until so many have been asked for at the same time, or for 20 seconds."""
    all_there = threading.Barrier(count)
    first = itertools.count()

    def wait(body: dict[str, Any]) -> tuple[int, Any]:
        if next(first) < count:
            with suppress(threading.BrokenBarrierError):
                all_there.wait(20)
        return 200, answer

    return wait


def completion(text: str) -> dict[str, Any]:
    """A chat completion."""
    message = {"role": "assistant", "content": text}
    return {
        "id": "1",
        "object": "chat.completion",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
    }


def run_code(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """What Sandbox Fusion's ``/run_code`` does for Python, in a process with limits."""
    started = time.monotonic()
    confined = ["sh", "-c", f'ulimit -v {body["memory_limit_MB"] * 1024}; exec "$@"', "sh"]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "main.py")
        file.write_text(body["code"])
        command = [*confined, sys.executable, "-I", "-S", str(file)]
        try:
            ran = subprocess.run(
                command,
                input=body["stdin"] or "",
                capture_output=True,
                text=True,
                timeout=body["run_timeout"],
                cwd=folder,
            )
        except subprocess.TimeoutExpired:
            result = {"status": "TimeLimitExceeded", "execution_time": body["run_timeout"], "return_code": None}
            return 200, {"status": "Failed", "message": "", "compile_result": None, "run_result": result}
    result = {
        "status": "Finished",
        "execution_time": time.monotonic() - started,
        "return_code": ran.returncode,
        "stdout": ran.stdout,
        "stderr": ran.stderr,
    }
    status = "Success" if ran.returncode == 0 else "Failed"
    return 200, {"status": status, "message": "", "compile_result": None, "run_result": result, "files": {}}
