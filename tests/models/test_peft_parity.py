"""PEFT loads the adapters that we write, and we those that it writes; both compute the same logits."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.config.schema import PROJECTIONS, LoraConfig
from pods_jax.models import peft_adapter, save_pretrained
from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.models.lora import adapt, init_adapters, merge
from pods_jax.models.peft_adapter import load_adapter, save_adapter

torch = pytest.importorskip("torch", reason="parity with PEFT needs torch: the `parity` extra")
peft = pytest.importorskip("peft", reason="parity with PEFT needs peft: the `parity` extra")
import transformers  # noqa: E402

CONFIG = ModelConfig(
    vocab_size=61,
    hidden_size=48,
    intermediate_size=40,
    num_hidden_layers=2,
    num_attention_heads=6,
    num_key_value_heads=2,
    head_dim=16,
    attention_bias=True,
)
MODEL = Decoder(CONFIG)
TOKENS = np.random.default_rng(0).integers(0, CONFIG.vocab_size, (2, 20))


@pytest.fixture
def base(tmp_path):
    """Parameters, and a folder that transformers loads them from."""
    params = init_params(MODEL, jax.random.key(0))
    save_pretrained(tmp_path / "base", MODEL, params)
    return params, tmp_path / "base"


def their_model(folder):
    return transformers.AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager").eval()


def their_logits(model) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor(TOKENS)).logits.numpy()


def our_logits(params):
    return MODEL.apply({"params": params}, jnp.asarray(TOKENS))


@pytest.mark.parametrize("modules", [PROJECTIONS, ("k_proj", "gate_proj")])
def test_peft_computes_our_adapters(base, tmp_path, modules):
    params, folder = base
    lora = LoraConfig(rank=4, alpha=8.0, target_modules=modules)
    rng = np.random.default_rng(1)
    adapters = jax.tree.map(
        lambda x: jnp.asarray(rng.normal(0, 0.2, x.shape), jnp.float32),
        init_adapters(CONFIG, lora, jax.random.key(0)),
    )
    save_adapter(tmp_path / "adapter", adapters, lora, str(folder))
    adapted = adapt(params, adapters, lora.scale)
    theirs = peft.PeftModel.from_pretrained(their_model(folder), tmp_path / "adapter")
    assert np.abs(our_logits(adapted) - our_logits(params)).max() > 0.1
    np.testing.assert_allclose(our_logits(adapted), their_logits(theirs), rtol=0, atol=1e-4)

    save_pretrained(tmp_path / "merged", MODEL, merge(adapted))
    np.testing.assert_allclose(their_logits(their_model(tmp_path / "merged")), their_logits(theirs), rtol=0, atol=1e-4)

    theirs.save_pretrained(tmp_path / "again")
    loaded, settings = load_adapter(tmp_path / "again", CONFIG)
    assert dataclasses.replace(settings, target_modules=modules) == lora
    assert set(settings.target_modules) == set(modules)
    jax.tree.map(np.testing.assert_array_equal, loaded, adapters)


def test_every_field_of_peft_is_known():
    """A field that a later PEFT adds is refused unless it is empty, so this only says which are to be looked at."""
    known = peft_adapter.ONLY.keys() | peft_adapter.READ.keys() | peft_adapter.FREE
    fields = {field.name for field in dataclasses.fields(peft.LoraConfig)}
    assert fields - known == {"init_lora_weights", "target_modules"}


def test_we_compute_the_adapters_of_peft(base, tmp_path):
    params, folder = base
    torch.manual_seed(0)
    config = peft.LoraConfig(r=3, lora_alpha=12, target_modules=list(PROJECTIONS), init_lora_weights=False)
    theirs = peft.get_peft_model(their_model(folder), config)
    theirs.save_pretrained(tmp_path / "theirs")
    adapters, lora = load_adapter(tmp_path / "theirs", CONFIG)
    adapted = adapt(params, adapters, lora.scale)
    assert np.abs(our_logits(adapted) - our_logits(params)).max() > 0.1
    np.testing.assert_allclose(our_logits(adapted), their_logits(theirs), rtol=0, atol=1e-4)
