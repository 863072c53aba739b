"""The papers' settings: every config with every argument is valid, and trains when it is shrunk."""

from pathlib import Path

import pytest

from pods_jax.config.load import load_config, load_module
from pods_jax.config.methods import set_method
from pods_jax.config.schema import Config, default_config, from_mapping, to_dict
from pods_jax.config.validate import violations
from pods_jax.errors import UserError
from pods_jax.models.shapes import SHAPES
from pods_jax.training import Reporter, train

ROOT = Path(__file__).parents[2]
PODS = sorted((ROOT / "configs/paper").glob("*.py"))
PILOT_COMMIT = sorted((ROOT / "configs/pilot_commit").glob("*.py"))
PODS_ABLATIONS = ("n=64", "pods,m=4", "pods,rule=random", "pods,normalize=before", "grpo,n=64")
QUICK = {"gsm8k_qwen3b_lora:pods", "gsm8k_qwen3b_full:pods", "deepmath_1p5b:pilot_commit"}


def specs() -> list[str]:
    """Every file with every argument that it names, and the ablations."""
    arguments = {p: [*load_module(p).METHODS, *PODS_ABLATIONS] for p in PODS}
    arguments |= {p: [*load_module(p).METHODS, "grpo,n=16"] for p in PILOT_COMMIT}
    return [f"{path}:{argument}" for path, found in arguments.items() for argument in found]


SPECS = specs()


def short(spec: str) -> str:
    path, _, argument = spec.partition(":")
    return f"{Path(path).stem}:{argument}"


def test_the_published_runs_have_the_authors_model_and_data():
    """By name; all that decides about rollouts is as in ours."""
    for method in ("pilot_commit", "grpo", "dapo"):
        ours = load_config(f"configs/pilot_commit/deepmath_1p5b.py:{method}")
        published = load_config(f"configs/pilot_commit/deepmath_1p5b.py:published,{method}")
        assert (ours.model.path, ours.data.name) == ("Qwen/Qwen2.5-Math-1.5B", "deepmath")
        assert published.model.path == "friendshipkim/Qwen2.5-Math-1.5B"
        assert published.data.name == published.evaluation.sets["deepmath"]["name"] == "deepmath_filtered"
        assert (published.rollout, published.allocation) == (ours.rollout, ours.allocation)
    assert load_config("configs/pilot_commit/deepmath_1p5b.py:published").allocation.name == "pilot_commit"


def test_no_run_is_longer_than_its_model_allows_without_saying_so():
    for path in [*PODS, *PILOT_COMMIT]:
        config = load_config(str(path))
        tokens = config.rollout.max_prompt_length + config.rollout.max_completion_length
        longer = tokens > SHAPES[config.model.path].max_position_embeddings
        assert longer == config.model.allow_longer_context


def shrunk(config: Config) -> Config:
    """The same method on a policy of 2 layers and generated data: 2 steps of groups of 8, kept in the same ratio."""
    c = default_config()
    c.update(to_dict(config))
    tiny = {
        "model.path": None, "model.compute_dtype": None, "model.num_hidden_layers": 2,
        "model.hidden_size": 16, "model.intermediate_size": 32,
        "model.num_attention_heads": 2, "model.num_key_value_heads": 1, "lora.quantize_base": None,
        "data.name": "addition", "data.path": None, "data.eval_name": None, "data.system_prompt": None,
        "data.prompt_template": "{question}", "reward.task": None, "reward.overlong_cache_length": None,
        "rollout.max_prompt_length": 5, "rollout.max_completion_length": 4,
        "mesh.data": -1, "mesh.fsdp": 1, "rollout.max_cache_bytes_per_device": None,
        "optimizer.micro_batch_size_per_device": None, "optimizer.warmup_steps": 1, "training.num_steps": 2,
        "training.eval_every_steps": 1, "evaluation.num_prompts": 8, "evaluation.batch_size": 8,
    }  # fmt: skip
    c.update_from_flattened_dict(tiny)
    c.lora.rank = min(c.lora.rank, 2)
    c.data.options = {"base": 3, "digits": 2, "num_train": 24, "num_test": 8, "unseen_fraction": 0.25}
    if c.evaluation.sets:
        c.evaluation.sets = {"again": {"name": "addition", "options": c.data.options}}
    n, m = c.rollout.num_generations, c.selection.num_kept
    c.rollout.num_prompts = min(c.rollout.num_prompts, 8)
    c.rollout.num_generations, c.selection.num_kept = 8, max(2, 8 * m // n)
    small = {"groups_per_prompt": 4, "n_pilot": 2, "n_commit": 6, "candidates": 12}
    options = {k: small.get(k, v) for k, v in to_dict(config.allocation)["options"].items()}
    if c.allocation.name != "uniform":  # a policy that knows nothing is right too seldom for its groups to vary
        c.warm_start.num_steps, options["on_exhausted"] = 60, "train_partial"
    c.allocation.options = options
    built, problems = from_mapping(c)
    assert not problems + violations(built)
    return built


@pytest.mark.parametrize("spec", SPECS, ids=short)
def test_every_argument_is_a_valid_config(spec):
    config = load_config(spec)
    assert config.model.path
    assert config.data.name != "addition"
    shrunk(config)


@pytest.mark.parametrize(
    "spec", [pytest.param(s, marks=() if short(s) in QUICK else pytest.mark.slow) for s in SPECS], ids=short
)
def test_a_shrunk_run(spec, tmp_path):
    config = shrunk(load_config(spec))
    summary = train(config, tmp_path / "run", Reporter())
    assert summary["steps"] == 2
    assert 0 < summary["rollouts/trained"] <= summary["rollouts/generated"]


@pytest.mark.parametrize("path", PODS + PILOT_COMMIT, ids=lambda p: p.stem)
def test_every_value_has_its_source(path):
    """Lines that set something say [paper], [code] or [ours], themselves or in the comment above them."""
    body = path.read_text().partition('"""\n\n')[2].partition("def get_config")[2].split("\n\n")
    assert body
    for paragraph in body:
        for line in paragraph.splitlines():
            if line.startswith("    c.") and "#" not in line:
                assert "[" in paragraph, (path.name, line)


# ---------------------------------------------------------------- arguments

METHODS = {"pods": {}, "grpo": {"objective.beta": 0.5}}


def after(argument: str) -> tuple:
    c = default_config()
    set_method(c, argument, METHODS)
    return c.rollout.num_generations, c.selection.num_kept, c.selection.rule, c.objective.statistics, c.objective.beta


@pytest.mark.parametrize(
    ("argument", "expected"),
    [
        ("pods", (64, 16, "max_variance", "kept", 0.0)),
        ("grpo", (16, 16, "all", "kept", 0.5)),
        ("n=128", (128, 16, "max_variance", "kept", 0.0)),
        ("pods,n=128,m=4", (128, 4, "max_variance", "kept", 0.0)),
        ("pods,rule=random,normalize=before", (64, 16, "random", "group", 0.0)),
        ("grpo,n=32", (32, 32, "all", "kept", 0.5)),
        ("grpo,m=8", (8, 8, "all", "kept", 0.5)),
        ("grpo,n=64,rule=random", (64, 16, "random", "kept", 0.5)),
    ],
)
def test_arguments(argument, expected):
    assert after(argument) == expected


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("podz", "no method 'podz' .did you mean 'pods'"),
        ("pods,16", "'16' is no option: write name=value with a name of n, m, rule, normalize"),
        ("pods,k=1", "'k=1' is no option"),
        ("pods,n=many", "n must be an integer"),
        ("normalize=never", "normalize must be before or after"),
    ],
)
def test_arguments_that_are_none(argument, message):
    with pytest.raises(UserError, match=message):
        after(argument)
