"""Config files to frozen configs: every problem is named, and nothing is guessed."""

import dataclasses
import importlib.util
from pathlib import Path

import pytest

from pods_jax.config.load import load_config
from pods_jax.config.schema import Config, default_config, from_mapping, to_dict
from pods_jax.config.validate import validate_on_devices, violations
from pods_jax.errors import UserError
from pods_jax.selection import RULES

ROOT = Path(__file__).parents[2]


def test_the_default_round_trips():
    assert from_mapping(default_config()) == (Config(), [])
    assert from_mapping(to_dict(Config())) == (Config(), [])


def test_a_config_is_hashable():
    assert len({Config(), Config(), dataclasses.replace(Config(), seed=1)}) == 2


def test_every_problem_is_reported_at_once():
    with pytest.raises(UserError) as caught:
        load_config(
            str(ROOT / "configs/demo.py"),
            ["selecton.rule=x", "seed=a", "rollout.num_generations=8", "objective.loss_type=dappo", "rollout.top_p=0"],
        )
    for part in (
        "unknown key selecton (did you mean 'selection'?)",
        "seed must be int, got 'a'",
        "(m = 16) exceeds rollout.num_generations (n = 8)",
        "objective.loss_type = 'dappo' is unknown (did you mean 'dapo'?)",
        "rollout.top_p must lie in (0, 1]",
    ):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("evaluation.sets={'time': {'name': 'addition'}}", "evaluation.sets: 'time' cannot be a prefix, as time, roll"),
        ("model.num_attention_heads=0", "model.num_attention_heads must be positive"),
        ("model.num_key_value_heads=3", "multiple of model.num_key_value_heads"),
        ("selection.num_kept=1", "at least 2"),
        ("optimizer.micro_batch_size_per_device=24", "multiple or divisor of m = 16"),
        ("model.dtype=bfloat16", "round small updates"),
        ("mesh.data=0", "mesh sizes must be positive"),
        ("seed=-1", "seed must not be negative"),
        ("rollout.attention=kernels", "rollout.attention = 'kernels' is unknown .did you mean 'kernel'"),
        ("optimizer.name=muonn", "optimizer.name = 'muonn' is unknown .did you mean 'muon'"),
        ("optimizer.muon_momentum=1.0", "optimizer.muon_momentum must lie in .0, 1"),
        ("objective.sync_ref_model=True", "no reference to synchronise: objective.beta is 0"),
        ("warm_start.seed=-1", "warm_start.seed must not be negative"),
        ("allocation.options={a: b}", "allocation.options must be a dict such as \"{'key': 'value'}\", got '{a: b}'"),
        ("allocation.options={[1]: 2}", "allocation.options must be a dict such as .*, got '{.1.: 2}'"),
        ("allocation.options={1: 2}", "allocation.options must be a dict such as .*, got {1: 2}"),
        ("reward.parts={1: 2}", "reward.parts must be .*, got {1: 2}"),
        ("optimizer.learning_rate=1" + "0" * 400, "learning_rate': a number of 401 digits is too large"),
        ("optimizer.learning_rate=1e999", "optimizer.learning_rate must be a finite float, got inf"),
        ("data.options={'a': {1: 2}}", "data.options must be a dict such as .*, got {'a': {1: 2}}"),
        ("rollout.temperature=0.0", "rollout.temperature must be positive"),
        ("training.max_minutes=0.0", "training.max_minutes must be positive or None"),
        ("objective.delta=-1.0", "objective.delta must be positive or None"),
        ("objective.epsilon_high=-5.0", "objective.epsilon_high must not be negative"),
        ("objective.advantage_epsilon=-1.0", "objective.advantage_epsilon must not be negative"),
        ("objective.ddof=-3", "objective.ddof must not be negative"),
        ("optimizer.adam_beta1=1.5", r"optimizer.adam_beta1 must lie in \[0, 1\)"),
        ("selection.rule='all'", "keeps all rollouts"),
        ("rollout.min_p=1.5", r"rollout.min_p must lie in \[0, 1\], got 1.5"),
        ("evaluation.min_p=-0.1", r"evaluation.min_p must lie in \[0, 1\], got -0.1"),
        ("rollout.min_p=1.0", "rollout.min_p = 1.0 draws the most probable token"),
        ("rollout.top_k=1", "rollout.top_k = 1 draws the most probable token"),
        ("rollout.repetition_penalty=0.0", "rollout.repetition_penalty must be positive"),
        ("evaluation.repetition_penalty=-1.0", "evaluation.repetition_penalty must be positive"),
        ("rollout.stop=</answer>", r"rollout.stop must be a tuple of strings .*\('value',\).*, got '</answer>'"),
        ("rollout.stop=('',)", "rollout.stop must hold strings that text can contain, got ''"),
        ("evaluation.stop=(3,)", r"evaluation.stop must be a tuple of strings .* or None, got \(3,\)"),
        ("evaluation.stop=x", "evaluation.stop must be a tuple of strings .* or None, got 'x'"),
        ("training.num_steps=2.5", "training.num_steps must be int"),
        ("training.num_steps=True", "training.num_steps must be int"),
    ],
)
def test_a_violation_is_named(override, message):
    with pytest.raises(UserError, match=message):
        load_config(str(ROOT / "configs/demo.py"), [override])


def test_behaviour_logprobs_leave_nothing_to_correct():
    load_config(str(ROOT / "configs/demo.py"), ["objective.old_logprobs='behaviour'"])
    overrides = ["objective.old_logprobs='behaviour'", "objective.importance_sampling_cap=2.0"]
    with pytest.raises(UserError, match="importance_sampling_cap has nothing to correct"):
        load_config(str(ROOT / "configs/demo.py"), overrides)


def test_overrides_take_literals_and_strings():
    c = load_config(
        str(ROOT / "configs/demo.py"),
        [
            "seed=3",
            "optimizer.learning_rate=1",
            "selection.rule=random",
            "training.max_minutes=None",
            "data.options.digits=4",
        ],
    )
    assert (c.seed, c.optimizer.learning_rate, c.selection.rule, c.training.max_minutes) == (3, 1.0, "random", None)
    assert c.data.options.digits == 4


def test_stop_strings_are_tuples_or_lists():
    overrides = ["rollout.stop=['</answer>']", "evaluation.stop=('a', 'b')"]
    c = load_config(str(ROOT / "configs/demo.py"), overrides)
    assert (c.rollout.stop, c.evaluation.stop) == (("</answer>",), ("a", "b"))


def test_the_mesh_must_divide_the_batch():
    c = load_config(str(ROOT / "configs/demo.py"), ["rollout.num_prompts=6"])
    with pytest.raises(UserError, match="64 x 1 devices must divide the 6 x 16 rollouts"):
        validate_on_devices(c, 1)
    with pytest.raises(UserError, match=r"must be a multiple of the 4 data-parallel devices.*must divide the 6 x 16"):
        validate_on_devices(c, 4)


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ("configs/dmo.py", r"no config file .*did you mean .*demo.py"),
        ("configs/demo.py:podz", "no method 'podz' .did you mean 'pods'"),
        ("configs/smollm2_chain_sum.py:gsm", "no argument 'gsm'"),
    ],
)
def test_a_wrong_file_or_argument(spec, message):
    with pytest.raises(UserError, match=message):
        load_config(str(ROOT / spec))


def test_a_file_without_get_config(tmp_path):
    (tmp_path / "empty.py").write_text("")
    with pytest.raises(UserError, match="has no get_config"):
        load_config(str(tmp_path / "empty.py"))


def test_an_argument_that_the_file_does_not_take(tmp_path):
    (tmp_path / "plain.py").write_text("from pods_jax.config.schema import default_config as get_config\n")
    assert load_config(str(tmp_path / "plain.py")).seed == 0
    with pytest.raises(UserError, match="takes no argument"):
        load_config(f"{tmp_path / 'plain.py'}:x")


def test_an_override_without_a_value():
    with pytest.raises(UserError, match="has no '=value'"):
        load_config(str(ROOT / "configs/demo.py"), ["seed"])


@pytest.mark.parametrize("path", sorted((ROOT / "configs").rglob("*.py")), ids=lambda p: p.stem)
def test_every_config_is_valid_and_documented(path):
    assert violations(load_config(str(path))) == []
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert "python experiments/train.py --config configs/" in module.__doc__


def test_the_demo_methods_differ_only_in_n_m_and_rule():
    pods = load_config(str(ROOT / "configs/demo.py:pods"))
    for method, n, m, rule in (("grpo", 16, 16, "all"), ("grpo_ga", 64, 64, "all"), ("random", 64, 16, "random")):
        other = load_config(f"{ROOT / 'configs/demo.py'}:{method}")
        assert (other.rollout.num_generations, other.selection.num_kept, other.selection.rule) == (n, m, rule)
        assert dataclasses.replace(other, rollout=pods.rollout, selection=pods.selection) == pods
        assert dataclasses.replace(other.rollout, num_generations=pods.rollout.num_generations) == pods.rollout


def test_a_rule_that_wants_what_there_is_not_is_refused(monkeypatch):
    monkeypatch.setitem(RULES._parts, "painted", lambda rewards, num_kept, key, valid, colours: ...)
    with pytest.raises(UserError, match="'painted' has a parameter 'colours'; rules are given lengths and entropies"):
        load_config(str(ROOT / "configs/demo.py"), ["selection.rule=painted"])
