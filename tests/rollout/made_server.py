"""A server of the completions API on the loopback, with the faults that a test orders."""

import contextlib
import json
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

EOS = 1
VOCABULARY = 32


def counted(server, body) -> list[dict]:
    """n choices of a "model" that counts: choice i starts from the prompt's last id plus i, and its log-probabilities
    tell the version of the weights."""
    limit = body["max_tokens"]
    rows = [[2 + (body["prompt"][-1] + i + t) % (VOCABULARY - 2) for t in range(limit)] for i in range(body["n"])]
    rows[0] = [*rows[0][: limit // 2], EOS]
    return [choice(i, row, [-(server.version + 1) / 64] * len(row)) for i, row in enumerate(rows)]


def choice(index, tokens, logprobs) -> dict:
    return {
        "index": index,
        "text": "",
        "token_ids": tokens,
        "finish_reason": "stop" if tokens[-1] == EOS else "length",
        "logprobs": {"tokens": [f"token_id:{t}" for t in tokens], "token_logprobs": logprobs},
    }


class MadeServer:
    """Serves at `url` until it is closed; may be stopped and started anew at the same address.

    Attributes:
      complete: (server, body) -> the choices of an answer.
      load: (folder) -> None, called with the folder of a reload.
      version: of the weights that were loaded last; -1 after a start.
      faults: what goes wrong with the next completions, one each: a status, a number of seconds of sleep as a float,
        "drop", "half", "restart", a function of the choices, or None.
      requests: (path, body) of all calls.
    """

    def __init__(self, complete: Callable = counted, load: Callable = lambda folder: None):
        self.complete = complete
        self.load = load
        self.faults: list = []
        self.requests: list[tuple[str, dict]] = []
        self.headers: list = []
        self.lock = threading.Lock()
        self.start(port=0)

    def start(self, port):
        self.version = -1
        handler = type("Handler", (_Handler,), {"made": self})
        self._http = ThreadingHTTPServer(("127.0.0.1", port), handler)
        self._http.daemon_threads = True
        self.port = self._http.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()

    def stop(self):
        self._http.shutdown()
        self._http.server_close()

    def restart(self, away_s=0.0):
        self.stop()
        time.sleep(away_s)
        self.start(self.port)

    def paths(self):
        return [path for path, _ in self.requests]

    def completions(self):
        return [body for path, body in self.requests if path == "/v1/completions"]


class _Handler(BaseHTTPRequestHandler):
    made: MadeServer

    def log_message(self, *_):
        pass

    def do_POST(self):
        made = self.made
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with made.lock:
            made.requests.append((self.path, body))
            made.headers.append(dict(self.headers))
            fault = made.faults.pop(0) if made.faults and self.path == "/v1/completions" else None
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self._answer(body, fault)

    def _answer(self, body, fault):
        made = self.made
        if self.path == "/collective_rpc":
            folder = Path(body["kwargs"]["weights_path"])
            made.load(folder)
            made.version = json.loads((folder / "pods_jax_policy.json").read_text())["version"]
            return self._send(200, {"results": [None]})
        if self.path == "/reset_prefix_cache":
            return self._send(200, {})
        if self.path != "/v1/completions":
            return self._send(404, {"error": "no such path"})
        if isinstance(fault, int):
            return self._send(fault, {"error": f"fault {fault}\nover two lines"})
        if fault == "drop":
            return self.connection.close()
        if fault == "restart":
            threading.Thread(target=made.restart, args=(0.2,), daemon=True).start()
            time.sleep(0.1)
            return self.connection.close()
        if isinstance(fault, float):
            time.sleep(fault)
        choices = made.complete(made, body)
        if callable(fault):
            choices = fault(choices)
        return self._send(200, {"choices": choices}, half=fault == "half")

    def _send(self, status, value, half=False):
        content = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[: len(content) // 2] if half else content)
