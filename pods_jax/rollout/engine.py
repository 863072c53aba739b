"""Engines: what generates a run's completions. `rollout.engine` names one: "jit", the sampler of this package, or
"module:Class" for a class of another make that has the methods of `Engine`.

`pods_jax.rollout.http_engine` has one for servers of the OpenAI-compatible completions API, such as vLLM's.
"""

import contextlib
import dataclasses
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import jax
from jaxtyping import Key

from pods_jax.config.schema import Config, RolloutConfig, parse_section, raise_problems
from pods_jax.errors import UserError
from pods_jax.models.decoder import Decoder, Params
from pods_jax.registry import load_named
from pods_jax.rollout.sampler import DRAWING, Completions, OnEnded, generate
from pods_jax.rollout.stop_strings import StopStrings

JIT = "jit"


class Orders(NamedTuple):
    """P prompts, and the rollouts that are wanted of each.

    Attributes:
      prompts: token ids, no padding.
      counts: [P] number of rollouts.
      prompt_ids, first_samples: [P] names for random numbers: of the prompt, and of its first rollout; the following
        rollouts have the following numbers.
      key: root of the random numbers. An engine that cannot name its random numbers ignores these three.
      on_ended: told, from the thread of the call, of rollouts that have ended while others go on; they are verified
        meanwhile. An engine that delivers all at once ignores it.
    """

    prompts: Sequence[Sequence[int]]
    counts: Sequence[int]
    prompt_ids: Sequence[int]
    first_samples: Sequence[int]
    key: Key[jax.Array, ""]
    on_ended: OnEnded | None = None


@dataclasses.dataclass(frozen=True)
class SamplingParams:
    """The distribution that tokens are drawn from, and the limit of their number; see `generate`."""

    max_new_tokens: int
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    stop: tuple[str, ...] = ()


def sampling_params(section: Any, **others: Any) -> SamplingParams:
    """The draw of a section of the config; others: fields with other values, such as max_new_tokens."""
    return SamplingParams(**({name: getattr(section, name) for name in (*DRAWING, "stop")} | others))


@dataclasses.dataclass(frozen=True)
class Served:
    """The policy of a run, as its engine sees it.

    Attributes:
      model: its decoder, without weights.
      params: () -> its present weights, as `generate` takes them. The next update frees their memory: an engine that
        still reads them then, as it may under rollout.ahead on devices other than `Engine.devices`, must copy them.
      save: (folder) -> None writes its present weights, tokenizer and config.json as a Hugging Face folder. Of several
        processes all must call it; the main one writes.
      decode: the text of token ids, in which stop strings are looked for.
      eos_ids, pad_id, absent_ids: see `generate`.
      config: the limits of the sampler.
      sharding: of the prompts, on the devices that sampling may use.
    """

    model: Decoder
    params: Callable[[], Params]
    save: Callable[[Path], None]
    decode: Callable[[Sequence[int]], str]
    eos_ids: tuple[int, ...]
    pad_id: int
    absent_ids: tuple[range, ...]
    config: RolloutConfig
    sharding: jax.sharding.NamedSharding


@dataclasses.dataclass(frozen=True)
class EngineOptions:
    """Base of an engine's options: the fields of a subclass are the keys of `rollout.engine_options`."""

    def violations(self, config: Config) -> Iterator[str]:
        """Messages about values that are out of range or do not fit each other."""
        yield from ()


@runtime_checkable
class Engine(Protocol):
    """Generates completions with a policy that it was given. Made as `Class(served, options)`, which starts nothing.

    A class with options names their dataclass, a subclass of `EngineOptions`, as its attribute `Options`. Of several
    processes all call each method, with the same arguments, and must get the same result.
    """

    def update_params(self, version: int) -> None:
        """Takes the present policy, to which `version`, the step after which it was taken, belongs.

        It is called before the first `generate` of each step and of each evaluation.
        """

    def generate(self, orders: Orders, sampling: SamplingParams) -> Completions:
        """Completions of every prompt under the policy taken last; logprobs at the temperature, see `Completions`.

        Raises:
          UserError: it cannot, and says why in one line.
        """

    def release(self) -> None:
        """Frees what only generation needs: no `generate` comes before the next `update_params`."""

    def devices(self) -> Collection[jax.Device]:
        """Those of this process's devices that `generate` computes on."""


class JitEngine:
    """The sampler of this package, on the devices of the sampling mesh."""

    Options = EngineOptions

    def __init__(self, served: Served, options: EngineOptions):
        self._served = served
        self._params: Params | None = None

    def update_params(self, version: int) -> None:
        self._params = self._served.params()

    def generate(self, orders: Orders, sampling: SamplingParams) -> Completions:
        s = self._served
        return generate(
            s.model,
            self._params,
            orders.prompts,
            num_generations=orders.counts,
            max_new_tokens=sampling.max_new_tokens,
            key=orders.key,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            min_p=sampling.min_p,
            repetition_penalty=sampling.repetition_penalty,
            stops=StopStrings(s.decode, sampling.stop) if sampling.stop else None,
            eos_ids=s.eos_ids,
            pad_id=s.pad_id,
            absent_ids=s.absent_ids,
            prompt_ids=orders.prompt_ids,
            first_samples=orders.first_samples,
            sharding=s.sharding,
            chunk_size=s.config.chunk_size,
            max_cache_bytes_per_device=s.config.max_cache_bytes_per_device,
            attention=s.config.attention,
            on_ended=orders.on_ended,
        )

    def release(self) -> None:
        self._params = None

    def devices(self) -> Collection[jax.Device]:
        return self._served.sharding.device_set


@contextlib.contextmanager
def serving(engine: Engine, version: int) -> Iterator[None]:
    """The engine has the present policy, of this version, and releases it in the end."""
    engine.update_params(version)
    try:
        yield
    finally:
        engine.release()


# ---------------------------------------------------------------- by name


def make_engine(config: Config, served: Served) -> Engine:
    """The engine of a config. Raises UserError for an unknown class or wrong options."""
    cls = engine_class(config.rollout.engine)
    options, problems = _options(cls, config)
    raise_problems(problems)
    return cls(served, options)


def engine_problems(config: Config) -> list[str]:
    """Messages about `rollout.engine` and its options; none if all is right."""
    try:
        return _options(engine_class(config.rollout.engine), config)[1]
    except UserError as error:
        return [str(error)]


def engine_class(name: str) -> Callable[[Served, Any], Engine]:
    """The class that `rollout.engine` names.

    Raises:
      UserError: there is no such module or class, or it lacks a method of `Engine`.
    """
    if name == JIT:
        return JitEngine
    cls = load_named(name, f"rollout.engine = '{name}'", "'jit' or module:Class")
    if missing := [m for m in ("update_params", "generate", "release", "devices") if not hasattr(cls, m)]:
        raise UserError(f"rollout.engine = '{name}' has no method {missing[0]} (see pods_jax.rollout.engine.Engine)")
    return cls


def _options(cls: Any, config: Config) -> tuple[EngineOptions, list[str]]:
    prefix = "rollout.engine_options."
    options, problems = parse_section(getattr(cls, "Options", EngineOptions), config.rollout.engine_options, prefix)
    return options, [*problems, *options.violations(config)]
