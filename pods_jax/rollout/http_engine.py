"""An engine over HTTP: a server of the OpenAI-compatible completions API, such as vLLM's, samples the completions.

The policy is handed over as a folder of safetensors, which calls of the user's choice tell the server to load.
"""

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from pods_jax.config.schema import Config
from pods_jax.errors import UserError
from pods_jax.fields import one_line
from pods_jax.io import local_path, write_atomic, writing
from pods_jax.parallel.hosts import arrays_from_main, is_main
from pods_jax.rollout.completions_api import PATH, Choice, Limits, read_choices, request_body
from pods_jax.rollout.engine import EngineOptions, Orders, SamplingParams, Served
from pods_jax.rollout.http_calls import Patience, Server, Unavailable, concurrently, parsed_url
from pods_jax.rollout.sampler import Completions, no_completions

MARK = "pods_jax_policy.json"
"""The file by which a folder is known as one that weights were handed over in."""

VLLM_RELOAD = (
    '/collective_rpc {"method": "reload_weights", "kwargs": {"weights_path": "{folder}"}}',
    "/reset_prefix_cache {}",
)


@dataclasses.dataclass(frozen=True)
class HttpOptions(EngineOptions):
    """Options of `HttpEngine`; docs/engines.md says more.

    Attributes:
      url: of the server, such as "http://gpu0:8000".
      folder: place of the weights, which the server reads under the same path; absent, empty, or of an earlier run.
      model: name of the model in requests; "": the folder's path, by which vLLM calls what it serves from there.
      reload: calls after which the server has the weights in the folder, in order, each "PATH JSON" for a POST.
        {folder} and {version} stand for the folder's path and the policy's version.
      logprobs_mode: vLLM's: "raw_logprobs" or "processed_logprobs" (after temperature and top-k/top-p).
      seeded: whether requests have seeds, named by step, prompt and sample.
      concurrency: requests at a time; one is for all rollouts of a prompt.
      timeout_s: seconds without a byte from the server after which a request has failed.
      attempts: failures in a row, without an answer between them, that end the run.
      backoff_s: seconds before the second attempt; each further wait is twice as long, up to a minute.
      key_variable: environment variable with the server's API key; "": none is sent.
    """

    url: str = ""
    folder: str = ""
    model: str = ""
    reload: tuple[str, ...] = VLLM_RELOAD
    logprobs_mode: str = "raw_logprobs"
    seeded: bool = False
    concurrency: int = 256
    timeout_s: float = 1800.0
    attempts: int = 12
    backoff_s: float = 1.0
    key_variable: str = ""

    def violations(self, config: Config) -> Iterator[str]:
        r = config.rollout
        if parsed_url(self.url) is None:
            yield f"rollout.engine_options.url must be http://HOST:PORT or https://..., got '{self.url}'"
        if not self.folder:
            yield "rollout.engine_options.folder is missing: the weights are handed over there"
        for name in ("concurrency", "timeout_s", "attempts", "backoff_s"):
            if not getattr(self, name) > 0:
                yield f"rollout.engine_options.{name} must be positive, got {getattr(self, name)}"
        for call in self.reload:
            if not _is_call(call):
                yield f"rollout.engine_options.reload: expected '/PATH JSON', got {call!r}"
        if self.logprobs_mode not in ("raw_logprobs", "processed_logprobs"):
            yield f"rollout.engine_options.logprobs_mode = '{self.logprobs_mode}' is unknown (raw_, processed_logprobs)"
        if self.logprobs_mode == "raw_logprobs" and r.temperature != 1:
            yield (
                f"rollout.temperature = {r.temperature} is not in the log-probabilities of 'raw_logprobs': start the "
                "server with --logprobs-mode processed_logprobs, and set rollout.engine_options.logprobs_mode to it"
            )
        reshaped = r.top_k or r.top_p < 1 or r.min_p or r.repetition_penalty != 1
        if self.logprobs_mode == "processed_logprobs" and reshaped:
            yield (
                "'processed_logprobs' leave out what rollout.top_k, top_p, min_p and repetition_penalty cut off, and "
                "are no log-probabilities over the vocabulary: set top_k = 0, top_p = 1.0, min_p = 0.0 and "
                "repetition_penalty = 1.0, or use 'raw_logprobs'"
            )
        if r.stop or config.evaluation.stop:
            yield "rollout.stop and evaluation.stop need rollout.engine = 'jit': a server's completions end at ids only"
        if self.key_variable and self.key_variable not in os.environ:
            yield f"rollout.engine_options.key_variable: the environment has no {self.key_variable}"


class HttpEngine:
    """Samples with a server that is already there. Of several processes the main one talks to it.

    What fails is tried again: refused and lost connections, timeouts, and the statuses 408, 429 and 5xx. Before that
    the weights are loaded again, as the server may have been started anew; answers that have come are kept. Answers
    that make no sense, and other statuses, are errors at once.

    A server that can only load weights when it starts needs a subclass whose `reload` restarts it.
    """

    Options = HttpOptions

    def __init__(self, served: Served, options: HttpOptions):
        self._served = served
        self._options = options
        self.folder = local_path(options.folder, "rollout.engine_options.folder").absolute()
        self._server = Server(options.url, options.timeout_s, os.environ.get(options.key_variable, ""))
        self._version: int | None = None
        self._loaded = False

    def update_params(self, version: int) -> None:
        if version == self._version:
            return
        if is_main():
            claim_folder(self.folder)
        self._served.save(self.folder)
        self._version = version
        self._loaded = False
        if is_main():
            with writing(self.folder, "rollout.engine_options.folder"):
                write_atomic(self.folder / MARK, json.dumps({"version": version}) + "\n")
            self._persistently(lambda patience: None)

    def reload(self) -> None:
        """Tells the server to load the weights in `folder`.

        Raises:
          Unavailable: this attempt failed; another may not.
          UserError: the server refuses.
        """
        for call in self._options.reload:
            path, _, body = call.partition(" ")
            values = {"{folder}": json.dumps(str(self.folder))[1:-1], "{version}": str(self._version)}
            for name, value in values.items():
                body = body.replace(name, value)
            self._server.post(path, json.loads(body))

    def generate(self, orders: Orders, sampling: SamplingParams) -> Completions:
        completions = no_completions(orders.counts, sampling.max_new_tokens, self._served.pad_id)
        if is_main():
            for place, choices in self._answers(orders, sampling).items():
                _put(completions, place, choices, self._served.eos_ids)
        return arrays_from_main(completions)

    def release(self) -> None:
        """Frees nothing: the server keeps its weights."""

    def devices(self) -> Sequence[jax.Device]:
        return ()

    def _answers(self, orders: Orders, sampling: SamplingParams) -> dict[int, list[Choice]]:
        """The completions of each prompt, by its place in the orders."""
        bodies = self._bodies(orders, sampling)
        answers: dict[int, list[Choice]] = {}

        def ask(patience: Patience) -> None:
            missing = [i for i in range(len(bodies)) if i not in answers]
            for i, answer in concurrently(
                lambda i: self._server.post(PATH, bodies[i]), missing, self._options.concurrency
            ):
                answers[i] = self._read(answer, orders.counts[i], sampling)
                patience.restore()

        self._persistently(ask)
        return answers

    def _bodies(self, orders: Orders, sampling: SamplingParams) -> list[dict[str, Any]]:
        o = self._options
        s = self._served
        name = o.model or str(self.folder)
        rows = zip(orders.prompts, orders.counts, orders.prompt_ids, orders.first_samples, strict=True)
        return [
            request_body(
                name, prompt, count, sampling, s.eos_ids, s.absent_ids,
                seed_of(orders.key, prompt_id, first) if o.seeded else None,
            )
            for prompt, count, prompt_id, first in rows
        ]  # fmt: skip

    def _read(self, answer: bytes, count: int, sampling: SamplingParams) -> list[Choice]:
        place = f"{self._options.url}{PATH}"
        try:
            parsed = json.loads(answer)
        except ValueError as error:
            raise UserError(f"{place}: the answer is no JSON ({one_line(error)})") from error
        s = self._served
        limits = Limits(count, sampling.max_new_tokens, s.model.config.vocab_size, s.eos_ids)
        return read_choices(parsed, limits, place)

    def _persistently(self, work: Callable[[Patience], None]) -> None:
        """Does `work` with a server that has the present weights, again and again until nothing fails."""
        patience = Patience(self._options.attempts, self._options.backoff_s)
        while True:
            try:
                if not self._loaded:
                    self.reload()
                    self._loaded = True
                return work(patience)
            except Unavailable as error:
                self._loaded = False
                patience.spend(error)


def _is_call(call: str) -> bool:
    path, _, body = call.partition(" ")
    try:
        json.loads(body)
    except ValueError:
        return False
    return path.startswith("/")


def claim_folder(folder: Path) -> None:
    """Raises a UserError if the folder holds files that are not from here, such as a model to be kept."""
    if folder.is_dir() and any(folder.iterdir()) and not (folder / MARK).is_file():
        raise UserError(
            f"rollout.engine_options.folder {folder} holds files that no run put there; choose an empty folder"
        )
    with writing(folder, "rollout.engine_options.folder"):
        folder.mkdir(parents=True, exist_ok=True)
        write_atomic(folder / MARK, "{}\n")


def seed_of(key: jax.Array, prompt_id: int, first_sample: int) -> int:
    """A seed of 63 bits for the rollouts of a request, named by all three."""
    names = np.array([*np.asarray(jax.random.key_data(key)).ravel(), prompt_id, first_sample], np.uint64)
    return int.from_bytes(hashlib.sha256(names.tobytes()).digest()[:8], "little") >> 1


def _put(completions: Completions, place: int, choices: Sequence[Choice], eos_ids: Sequence[int]) -> None:
    for row, choice in enumerate(choices):
        own = place, row, slice(len(choice.tokens))
        completions.tokens[own] = choice.tokens
        completions.logprobs[own] = choice.logprobs
        completions.lengths[place, row] = len(choice.tokens)
        completions.truncated[place, row] = choice.tokens[-1] not in eos_ids
