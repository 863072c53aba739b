"""`rollout.engine`: names of classes, their options, and the sampler of this package as one of them."""

import ast
import dataclasses
import re
from pathlib import Path

import jax
import numpy as np
import pytest
from ml_collections import FrozenConfigDict

from pods_jax.config.schema import Config, RolloutConfig, from_mapping
from pods_jax.config.validate import violations
from pods_jax.errors import UserError
from pods_jax.io import read_jsonl
from pods_jax.models import Decoder, ModelConfig, init_params
from pods_jax.parallel import batch_sharding, make_mesh
from pods_jax.rollout import generate
from pods_jax.rollout.engine import Engine, EngineOptions, JitEngine, Orders, SamplingParams, Served, serving
from pods_jax.rollout.http_engine import HttpEngine, HttpOptions
from pods_jax.training import Reporter, train

HTTP = "pods_jax.rollout.http_engine:HttpEngine"
RIGHT = {"url": "http://gpu0:8000", "folder": "/tmp/weights"}


@dataclasses.dataclass(frozen=True)
class LoudOptions(EngineOptions):
    volume: int = 3

    def violations(self, config):
        if self.volume > 11:
            yield f"rollout.engine_options.volume = {self.volume} is above 11"


class LoudEngine(JitEngine):
    Options = LoudOptions


class NoEngine:
    def update_params(self, version):
        """Takes nothing."""


def config_with(engine, options=None, **rollout):
    return Config(rollout=RolloutConfig(engine=engine, engine_options=FrozenConfigDict(options or {}), **rollout))


@pytest.mark.parametrize(
    ("engine", "options"), [("jit", {}), (HTTP, RIGHT), ("test_engine:LoudEngine", {"volume": 11})]
)
def test_right_engines_pass(engine, options):
    assert not violations(config_with(engine, options))


@pytest.mark.parametrize(
    ("engine", "options", "rollout", "message"),
    [
        ("vllm", {}, {}, "rollout.engine = 'vllm': expected 'jit' or module:Class"),
        ("no_such_module:Engine", {}, {}, "No module named 'no_such_module'"),
        ("test_engine:Absent", {}, {}, "has no attribute 'Absent'"),
        ("test_engine:HTTP", {}, {}, "is not callable"),
        ("test_engine:NoEngine", {}, {}, "has no method generate"),
        ("jit", {"volume": 1}, {}, "unknown key rollout.engine_options.volume"),
        ("test_engine:LoudEngine", {"volume": 12}, {}, "volume = 12 is above 11"),
        ("test_engine:LoudEngine", {"volume": "x"}, {}, "rollout.engine_options.volume must be int"),
        (HTTP, RIGHT | {"url": ""}, {}, "url must be http://HOST:PORT or https://..., got ''"),
        (HTTP, RIGHT | {"url": "gpu0:8000"}, {}, "url must be"),
        (HTTP, RIGHT | {"url": "http://gpu0:99999"}, {}, "url must be"),
        (HTTP, {"url": "http://gpu0"}, {}, "folder is missing"),
        (HTTP, RIGHT | {"attempts": 0}, {}, "attempts must be positive"),
        (HTTP, RIGHT | {"timeout_s": -1}, {}, "timeout_s must be positive"),
        (HTTP, RIGHT | {"reload": ["reload {}"]}, {}, "reload: expected '/PATH JSON', got 'reload {}'"),
        (HTTP, RIGHT | {"reload": ["/reload {"]}, {}, "reload: expected"),
        (HTTP, RIGHT | {"logprobs_mode": "raw_logits"}, {}, "logprobs_mode = 'raw_logits' is unknown"),
        (HTTP, RIGHT | {"key_variable": "NO_SUCH_KEY"}, {}, "the environment has no NO_SUCH_KEY"),
        (HTTP, RIGHT, {"temperature": 0.7}, "is not in the log-probabilities of 'raw_logprobs'"),
        (HTTP, RIGHT | {"logprobs_mode": "processed_logprobs"}, {"top_p": 0.9}, "leave out what"),
        (HTTP, RIGHT | {"logprobs_mode": "processed_logprobs"}, {"top_k": 9}, "leave out what"),
    ],
)
def test_wrong_engines_are_one_line_each(engine, options, rollout, message):
    problems = violations(config_with(engine, options, **rollout))
    assert len(problems) == 1
    assert message in problems[0]
    assert "\n" not in problems[0]


def test_a_temperature_is_in_processed_logprobs_and_top_k_in_raw_ones():
    assert not violations(config_with(HTTP, RIGHT | {"logprobs_mode": "processed_logprobs"}, temperature=0.7))
    assert not violations(config_with(HTTP, RIGHT, top_k=9, top_p=0.9))


def test_options_stand_beside_their_meaning():
    fields = {field.name for field in dataclasses.fields(HttpOptions)}
    assert not [name for name in fields if f"      {name}: " not in HttpOptions.__doc__]


# ---------------------------------------------------------------- the sampler as an engine


MODEL = Decoder(ModelConfig(16, 8, 16, 1, 2, 1, 4))


def served(params):
    return Served(
        model=MODEL, params=params, save=lambda folder: None, decode=str, eos_ids=(1,), pad_id=0,
        absent_ids=(range(14, 16),), config=RolloutConfig(chunk_size=3),
        sharding=batch_sharding(make_mesh(devices=jax.devices()[:1])),
    )  # fmt: skip


def test_the_samplers_engine_generates_what_the_sampler_does():
    weights = [init_params(MODEL, jax.random.key(i)) for i in range(2)]
    present = iter(weights)
    engine = JitEngine(served(lambda: next(present)), EngineOptions())
    assert isinstance(engine, Engine)
    assert engine.devices() == {jax.devices()[0]}
    orders = Orders([[3, 4], [5]], [3, 2], [7, 8], [0, 1], jax.random.key(5))
    for version, params in enumerate(weights):
        with serving(engine, version):
            found = engine.generate(orders, SamplingParams(6, 0.9, 12, 0.95))
        expected = generate(
            MODEL, params, orders.prompts, num_generations=[3, 2], max_new_tokens=6, key=orders.key, temperature=0.9,
            top_k=12, top_p=0.95, eos_ids=(1,), absent_ids=(range(14, 16),), prompt_ids=[7, 8], first_samples=[0, 1],
            chunk_size=3,
        )  # fmt: skip
        jax.tree.map(np.testing.assert_array_equal, found, expected)


def interrupted(engine):
    with serving(engine, 0):
        assert engine._params == "weights"
        raise UserError("...")


def test_weights_are_released_whatever_happens():
    engine = JitEngine(served(lambda: "weights"), EngineOptions())
    with pytest.raises(UserError):
        interrupted(engine)
    assert engine._params is None


def test_the_adapter_of_servers_is_an_engine():
    assert isinstance(HttpEngine(served(lambda: None), HttpOptions(**RIGHT)), Engine)


# ---------------------------------------------------------------- the guide


def test_the_engine_of_the_guide_trains(tiny, tmp_path, monkeypatch):
    guide = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()
    [(name, code)] = re.findall(r"```python\n# (\w+\.py)\n(.*?)```", guide, re.DOTALL)
    (tmp_path / name).write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    [tiny.rollout.engine] = re.findall(r"`--config\.rollout\.engine=(my_engine:\w+)`", guide)
    tiny.training.num_steps = 1
    config, problems = from_mapping(tiny)
    assert not problems + violations(config)
    train(config, tmp_path / "run", Reporter(quiet=True))
    [metrics] = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert metrics["completions/max_length"] == 1


def test_the_guide_names_every_option_and_its_default():
    guide = (Path(__file__).parents[2] / "docs" / "engines.md").read_text()
    rows = dict(re.findall(r"^\| `(\w+)` \| (.*?) \|", guide, re.MULTILINE))
    fields = {field.name: field.default for field in dataclasses.fields(HttpOptions)}
    assert rows.keys() == fields.keys()
    for name, cell in rows.items():
        if cell.startswith("`"):
            assert ast.literal_eval(cell.strip("`")) == fields[name], name
    for call in fields["reload"]:
        assert f"`{call}`" in guide
