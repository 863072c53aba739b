import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from pods_jax.config.load import load_config
from pods_jax.config.schema import PROJECTIONS, LoraConfig
from pods_jax.errors import UserError
from pods_jax.models import peft_adapter
from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.models.lora import MODULES, adapt, init_adapters, merge
from pods_jax.models.peft_adapter import load_adapter, load_adapter_for, save_adapter, with_adapters_settings
from pods_jax.rollout import generate

CONFIG = ModelConfig(
    vocab_size=19,
    hidden_size=12,
    intermediate_size=10,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=6,
)
LORA = LoraConfig(rank=3, alpha=6.0)
TOKENS = jnp.arange(16).reshape(2, 8)


@pytest.fixture(scope="module")
def base():
    return init_params(Decoder(CONFIG), jax.random.key(0))


def random_adapters(lora: LoraConfig = LORA):
    rng = np.random.default_rng(1)
    fresh = init_adapters(CONFIG, lora, jax.random.key(0))
    return jax.tree.map(lambda x: jnp.asarray(rng.normal(0, 0.3, x.shape), jnp.float32), fresh)


def logits(params):
    return jax.jit(Decoder(CONFIG).apply)({"params": params}, TOKENS)


def test_fresh_adapters_change_nothing(base):
    adapters = init_adapters(CONFIG, LORA, jax.random.key(0))
    np.testing.assert_array_equal(logits(adapt(base, adapters, LORA.scale)), logits(base))
    for name, ab in adapters["layers"].items():
        bound = base["layers"][name].shape[1] ** -0.5
        assert 0.8 * bound < np.abs(ab["a"]).max() <= bound
        assert not np.allclose(ab["a"][0], ab["a"][1])


def test_only_target_modules_are_adapted(base):
    adapters = random_adapters(dataclasses.replace(LORA, target_modules=("q_proj", "down_proj")))
    assert adapters["layers"].keys() == {"q", "down"}
    merged = merge(adapt(base, adapters, LORA.scale))
    changed = {k for k in base["layers"] if not np.array_equal(merged["layers"][k], base["layers"][k])}
    assert changed == {"q", "down"}


def test_adapted_and_merged_weights_are_the_textbook_sum(base):
    adapters = random_adapters()
    adapted = adapt(base, adapters, LORA.scale)
    merged = merge(adapted)
    for name, ab in adapters["layers"].items():
        a, b, w = (np.asarray(x, np.float64) for x in (ab["a"], ab["b"], base["layers"][name]))
        expected = w + 6.0 / 3 * np.einsum("lir,lro->lio", a, b)
        np.testing.assert_allclose(merged["layers"][name], expected, atol=1e-5)
    assert np.abs(logits(adapted) - logits(base)).max() > 0.1
    np.testing.assert_allclose(logits(adapted), logits(merged), atol=1e-4)


def test_adapted_and_merged_weights_give_the_same_tokens(base):
    adapted = adapt(base, random_adapters(), LORA.scale)
    tokens = [
        generate(
            Decoder(CONFIG), params, [[1, 2, 3], [4]],
            num_generations=2, max_new_tokens=12, key=jax.random.key(0), temperature=temperature,
        ).tokens
        for params in (adapted, merge(adapted))
        for temperature in (0.0, 1.0)
    ]  # fmt: skip
    np.testing.assert_array_equal(tokens[0], tokens[2])
    np.testing.assert_array_equal(tokens[1], tokens[3])


def test_gradients_follow_from_those_of_the_merged_weights(base):
    """dA = s dW B^T and dB = s A^T dW."""
    adapters = random_adapters()

    @jax.jit
    def loss(params):
        return jax.nn.log_softmax(Decoder(CONFIG).apply({"params": params}, TOKENS))[..., 3].mean()

    gradients = jax.grad(lambda adapters: loss(adapt(base, adapters, LORA.scale)))(adapters)
    of_weights = jax.grad(loss)(merge(adapt(base, adapters, LORA.scale)))
    for name, ab in adapters["layers"].items():
        dw = of_weights["layers"][name]
        expected = {
            "a": LORA.scale * jnp.einsum("lio,lro->lir", dw, ab["b"]),
            "b": LORA.scale * jnp.einsum("lir,lio->lro", ab["a"], dw),
        }
        for side in "ab":
            np.testing.assert_allclose(gradients["layers"][name][side], expected[side], rtol=1e-3, atol=1e-6)


def test_a_bfloat16_base_keeps_float32_adapters(base):
    low = jax.tree.map(lambda x: x.astype(jnp.bfloat16), base)
    adapted = adapt(low, random_adapters(), LORA.scale)
    gradients = jax.grad(lambda x: logits(adapt(low, x, LORA.scale)).std())(random_adapters())
    assert {x.dtype for x in jax.tree.leaves(gradients)} == {jnp.dtype("float32")}
    assert {x.dtype for x in jax.tree.leaves(merge(adapted))} == {jnp.dtype("bfloat16")}
    exact = logits(adapt(base, random_adapters(), LORA.scale))
    assert np.abs(logits(adapted) - exact).mean() < 0.02 * exact.std()


# ---------------------------------------------------------------- PEFT's format


@pytest.mark.parametrize("modules", [PROJECTIONS, ("q_proj", "up_proj")])
def test_saved_adapter_loads_bit_equal(tmp_path, modules):
    lora = dataclasses.replace(LORA, target_modules=modules)
    adapters = random_adapters(lora)
    save_adapter(tmp_path, adapters, lora)
    loaded, settings = load_adapter(tmp_path, CONFIG)
    assert settings == lora
    jax.tree.map(np.testing.assert_array_equal, loaded, adapters)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_dora": True}, "use_dora = True"),
        ({"use_rslora": True}, "use_rslora = True"),
        ({"bias": "all"}, "bias = 'all'"),
        ({"rank_pattern": {"q_proj": 4}}, "rank_pattern"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save"),
        ({"peft_type": "IA3"}, "peft_type = 'IA3'"),
        ({"target_modules": ["q_proj", "lm_head"]}, "target_modules"),
        ({"target_modules": ".*_proj"}, "target_modules"),
        ({"target_modules": ["q_proj"]}, "unexpected tensor 'base_model.model.model.layers.0.mlp.down_proj.lora_A"),
        ({"r": 4}, r"q_proj.lora_A.weight' has shape \[3, 12\], the model needs \[4, 12\]"),
        ({"r": None}, "no 'r'"),
    ],
)
def test_an_adapter_that_would_be_computed_wrongly_is_refused(tmp_path, changes, message):
    save_adapter(tmp_path, random_adapters(), LORA)
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(UserError, match=message):
        load_adapter(tmp_path, CONFIG)


NOT_PLAIN = [
    {"init_lora_weights": kind}
    for kind in ("pissa", "pissa_niter_16", "olora", "loftq", "corda", "eva", "lora_ga", "mica", ["gaussian"], 3)
] + [
    {"alora_invocation_tokens": [1, 2]},
    {"use_qalora": True},
    {"use_bdlora": {"target_modules_bd_a": ["q_proj"]}},
    {"alpha_pattern": {"q_proj": 3}},
    {"layers_to_transform": 0},
    {"layers_to_transform": [0]},
    {"layer_replication": [[0, 1]]},
    {"target_parameters": ["mlp.experts"]},
    {"trainable_token_indices": {"embed_tokens": [1]}},
    {"lora_bias": True},
    {"fan_in_fan_out": True},
    {"arrow_config": {"top_k": 1}},
    {"kasa_config": {"beta": 1e-4}},
    {"velora_config": {"rank": 1}},
    {"monteclora_config": {"n": 1}},
    {"task_type": "SEQ_CLS"},
    {"a_field_of_tomorrow": 1},
    {"r": "3"},
    {"r": 0},
    {"r": 3.0},
    {"lora_alpha": "6"},
    {"lora_alpha": float("nan")},
    {"target_modules": None},
    {"target_modules": [["q_proj"]]},
    {"target_modules": {"q_proj": 1}},
]


@pytest.mark.parametrize("changes", NOT_PLAIN, ids=str)
def test_an_adapter_that_is_not_plain_lora_is_refused_by_field_and_value(tmp_path, changes):
    save_adapter(tmp_path, random_adapters(), LORA)
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    ((field, value),) = changes.items()
    with pytest.raises(UserError, match=rf"adapter_config\.json: (no '{field}'|{field} = )") as error:
        load_adapter(tmp_path, CONFIG)
    assert value is None or str(value)[:10] in str(error.value)
    assert str(error.value).isprintable()


@pytest.mark.parametrize(
    "changes", [{"init_lora_weights": x} for x in (True, False, "gaussian", "orthogonal")] + [{"lora_dropout": 0.1}]
)
def test_fields_that_change_nothing_of_a_trained_adapter_are_accepted(tmp_path, changes):
    save_adapter(tmp_path, random_adapters(), LORA)
    path = tmp_path / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    jax.tree.map(np.testing.assert_array_equal, load_adapter(tmp_path, CONFIG)[0], random_adapters())


def test_an_adapter_to_start_from_has_the_settings_of_the_run(tmp_path):
    save_adapter(tmp_path, random_adapters(), LORA)
    same = dataclasses.replace(LORA, path=str(tmp_path), target_modules=tuple(reversed(PROJECTIONS)))
    jax.tree.map(np.testing.assert_array_equal, load_adapter_for(same, CONFIG), random_adapters())
    for change in ({"rank": 4}, {"alpha": 8.0}, {"target_modules": ("q_proj",)}):
        (name,) = change
        with pytest.raises(UserError, match=rf"lora\.{name} = .*, but the adapter in .* has"):
            load_adapter_for(dataclasses.replace(same, **change), CONFIG)


def test_what_the_config_leaves_at_its_default_is_the_adapters_own(tmp_path):
    own = LoraConfig(rank=2, alpha=3.0, target_modules=("q_proj", "up_proj"))
    save_adapter(tmp_path, init_adapters(CONFIG, own, jax.random.key(0)), own)
    path = str(tmp_path)
    assert with_adapters_settings(LoraConfig(path=path)) == dataclasses.replace(own, path=path)
    load_adapter_for(with_adapters_settings(LoraConfig(path=path)), CONFIG)
    given = with_adapters_settings(LoraConfig(rank=4, alpha=5.0, target_modules=("k_proj",), path=path))
    assert (given.rank, given.alpha, given.target_modules) == (4, 5.0, ("k_proj",))
    assert with_adapters_settings(LoraConfig()) == LoraConfig()
    (tmp_path / "file.py").write_text("from pods_jax.config import default_config as get_config")
    config = load_config(f"{tmp_path}/file.py", [f"lora.path={path}"])
    assert (config.lora.rank, config.lora.alpha) == (2, 3.0)
    with pytest.raises(UserError, match=r"lora\.path = .*/none': there is no such folder"):
        load_config(f"{tmp_path}/file.py", [f"lora.path={path}/none"])


def test_an_adapter_that_is_half_written_has_no_config(tmp_path, monkeypatch):
    save_adapter(tmp_path, random_adapters(), LORA)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(peft_adapter, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        save_adapter(tmp_path, random_adapters(), LORA)
    with pytest.raises(UserError, match=r"adapter_config.json: no such file"):
        load_adapter(tmp_path, CONFIG)


def test_an_incomplete_adapter_is_refused(tmp_path):
    save_adapter(tmp_path, random_adapters(), LORA)
    tensors = load_file(tmp_path / "adapter_model.safetensors")
    del tensors["base_model.model.model.layers.1.self_attn.o_proj.lora_B.weight"]
    save_file(tensors, tmp_path / "adapter_model.safetensors")
    with pytest.raises(UserError, match=r"lacks tensor '.*layers\.1\.self_attn\.o_proj\.lora_B\.weight'"):
        load_adapter(tmp_path, CONFIG)
    (tmp_path / "adapter_model.safetensors").unlink()
    with pytest.raises(UserError, match=r"adapter_model\.safetensors: no such file"):
        load_adapter(tmp_path, CONFIG)


def test_every_projection_has_one_name():
    assert tuple(MODULES) == PROJECTIONS
