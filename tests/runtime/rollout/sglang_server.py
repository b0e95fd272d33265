"""A server that answers by the shapes of SGLang's protocol (0.5.23), with the built-in engine behind it: it tests that rlctl
speaks the protocol, and nothing of SGLang itself.
"""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import torch

from rlctl.runtime.rollout.transformers import TransformersEngine
from rlctl.runtime.types import Request, Sampling

from .sglang_payloads import read

REQUIRED = {"rid", "input_ids", "sampling_params", "return_logprob", "stream"}


class Speaker:
    """What stands behind the protocol."""

    def __init__(self, model_path: str, layers_of_experts: tuple[int, ...] = (), layers: int = 0) -> None:
        self.layers_of_experts, self.layers = list(layers_of_experts), layers
        self.routed: torch.Tensor | None = None
        self.tensor_parallel = 1
        self.coming: dict[str, torch.Tensor] | None = None
        """The weights of the session that is open."""
        self.engine = TransformersEngine(model_path, tokenizer=model_path, records_experts=bool(layers_of_experts))
        self.version = "0"
        self.bodies: list[tuple[str, Any]] = []
        self.aborted: set[str] = set()
        self.running = threading.Event()
        self.running.set()
        self.one = threading.Lock()
        self.replies: dict[str, tuple[int, Any]] = {}
        """Answers that a test puts in the place of the usual."""

    def answer(self, path: str, body: Any) -> tuple[int, Any]:
        self.bodies.append((path, body))
        if path in self.replies:
            return self.replies[path]
        return getattr(self, path.strip("/"))(body)

    def health(self, body: Any) -> tuple[int, Any]:
        return 200, None

    def generate(self, body: dict[str, Any]) -> tuple[int, Any]:
        wanted = REQUIRED | ({"return_routed_experts"} if self.layers_of_experts else set())
        if body.keys() != wanted:
            return 400, {"error": {"message": f"unexpected {body.keys() ^ wanted}"}}
        self.running.wait()
        if body["rid"] in self.aborted:
            return 200, self._reply(body, [], {"type": "abort", "message": "Aborted"})
        asked = body["sampling_params"]
        sampling = Sampling(
            max_tokens=asked["max_new_tokens"],
            min_tokens=asked["min_new_tokens"],
            stop_token_ids=tuple(asked["stop_token_ids"] or ()),
            stop=tuple(asked["stop"] or ()),
            **{
                name: asked[name]
                for name in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "ignore_eos")
            },
        )
        with self.one:
            request = Request(tuple(body["input_ids"]), sampling, 1, asked["sampling_seed"])
            ((found,),) = self.engine.generate([request])
        drawn = [[log_prob, token, None] for log_prob, token in zip(found.log_probs, found.token_ids, strict=True)]
        self.routed = found.routed_experts
        reason: dict[str, Any] = {"type": found.finish_reason, "matched": found.cut or found.token_ids[-1]}
        if found.finish_reason == "length":
            reason = {"type": "length", "length": len(drawn)}
        return 200, self._reply(body, drawn, reason)

    def _reply(self, body: dict[str, Any], drawn: list[Any], reason: dict[str, Any]) -> dict[str, Any]:
        told = {
            "id": body["rid"],
            "finish_reason": reason,
            "prompt_tokens": len(body["input_ids"]),
            "weight_version": self.version,
            "completion_tokens": len(drawn),
            "cached_tokens": 0,
            "output_token_logprobs": drawn,
        }
        if self.layers_of_experts and self.routed is not None:  # int32 of all layers, those without experts too
            tokens, _, chosen = self.routed.shape
            whole = torch.full((tokens, self.layers, chosen), -1, dtype=torch.int32)
            whole[:, self.layers_of_experts] = self.routed.int()
            told["routed_experts"] = base64.b64encode(whole.numpy().tobytes()).decode()
        return {"text": "", "output_ids": [each[1] for each in drawn], "meta_info": told}

    def begin_weight_update(self, body: dict[str, Any]) -> tuple[int, Any]:
        if self.coming is not None:
            return 400, {"success": False, "message": "a weight-update session is already open"}
        self.coming = {}
        return 200, {"success": True, "message": "Success"}

    def update_weights_from_tensor(self, body: dict[str, Any]) -> tuple[int, Any]:
        """One payload a tensor worker, of which each reads its own and takes its part."""
        if self.coming is None:
            return 400, {"success": False, "message": "must run between begin_weight_update() and end_weight_update()"}
        payloads = body["serialized_named_tensors"]
        if len(payloads) != self.tensor_parallel:
            return 400, {"success": False, "message": f"{len(payloads)} payloads for {self.tensor_parallel} ranks"}
        parts = [[(name, tensor.clone()) for name, tensor in read(payload)] for payload in payloads]
        assert all([name for name, _ in part] == [name for name, _ in parts[0]] for part in parts)
        self.coming.update(parts[-1])
        self.version = body["weight_version"]
        return 200, {"success": True, "message": "Success"}

    def end_weight_update(self, body: dict[str, Any]) -> tuple[int, Any]:
        if self.coming is None:
            return 400, {"success": False, "message": "no weight-update session is open"}
        whole, self.coming = self.coming, None
        if whole and len(whole) == len(list(self.engine.model.parameters())):
            with self.one:
                self.engine.load_weights(whole.items(), version=int(self.version))
        return 200, {"success": True, "message": "Success"}

    def pause_generation(self, body: Any) -> tuple[int, Any]:
        self.running.clear()
        return 200, {"status": "ok", "message": "Generation paused successfully."}

    def continue_generation(self, body: Any) -> tuple[int, Any]:
        self.running.set()
        return 200, {"status": "ok", "message": "Generation continued successfully."}

    def abort_request(self, body: Any) -> tuple[int, Any]:
        self.aborted.add(body["rid"])
        return 200, None

    def flush_cache(self, body: Any) -> tuple[int, Any]:
        return 200, None

    def release_memory_occupation(self, body: Any) -> tuple[int, Any]:
        return 200, None

    def resume_memory_occupation(self, body: Any) -> tuple[int, Any]:
        return 200, None


def serving(speaker: Speaker) -> ThreadingHTTPServer:
    """An HTTP server in front of it, not started."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._reply(None)

        def do_POST(self) -> None:
            said = self.rfile.read(int(self.headers.get("content-length") or 0))
            self._reply(json.loads(said) if said else None)

        def _reply(self, body: Any) -> None:
            status, answer = speaker.answer(self.path, body)
            text = b"" if answer is None else json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args: Any) -> None:
            pass

    return ThreadingHTTPServer(("127.0.0.1", 0), Handler)
