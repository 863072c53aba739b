"""Numbers against transformers' own models: logits, greedy generation, gradients, and weights there and back."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.models.loading import load_pretrained, save_pretrained
from pods_jax.rollout import generate, token_logprobs

torch = pytest.importorskip("torch", reason="parity with transformers needs torch: the `parity` extra")
import safetensors.numpy  # noqa: E402
import transformers  # noqa: E402

SIZES = {
    "vocab_size": 97,
    "hidden_size": 84,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "max_position_embeddings": 256,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
HEADS = {  # query heads, key/value heads, head_dim; only in the first is head_dim x heads the model's width
    1: (6, 6, 14),
    3: (6, 2, 16),
    7: (7, 1, 24),
}


def config(kind: type, ratio: int, *, tied: bool = False, scaled: bool = False):
    heads, kv_heads, head_dim = HEADS[ratio]
    rope = {"rope_theta": 5e5, "rope_scaling": LLAMA3} if scaled else {"rope_theta": 1e4}
    return kind(
        **SIZES,
        **rope,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        tie_word_embeddings=tied,
        eos_token_id=None,  # nothing ends a completion early
    )


LLAMA, QWEN2, QWEN3 = transformers.LlamaConfig, transformers.Qwen2Config, transformers.Qwen3Config
CONFIGS = {
    "llama": config(LLAMA, 1),
    "llama, tied, GQA 3, scaled RoPE": config(LLAMA, 3, tied=True, scaled=True),
    "llama, GQA 7, scaled RoPE": config(LLAMA, 7, scaled=True),
    "qwen2, GQA 7": config(QWEN2, 7),
    "qwen2, tied, GQA 3": config(QWEN2, 3, tied=True),
    "qwen3, GQA 3": config(QWEN3, 3),
    "qwen3, tied, scaled RoPE": config(QWEN3, 1, tied=True, scaled=True),
}
ONE_OF_EACH = ["llama, tied, GQA 3, scaled RoPE", "qwen2, GQA 7", "qwen3, GQA 3"]
TOKENS = np.random.default_rng(0).integers(0, SIZES["vocab_size"], (2, 128))  # four times the original context


def random_model(name: str):
    """Random in every parameter, logits of unit scale."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(CONFIGS[name], attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.copy_(torch.randn_like(parameter) * parameter.shape[1] ** -0.5)
            else:
                parameter.add_(0.1 * torch.randn_like(parameter))
    return model


@pytest.fixture
def stored(request, tmp_path):
    """A random model of transformers, and the folder it is saved in."""
    model = random_model(request.param)
    model.save_pretrained(tmp_path / "theirs")
    return model, tmp_path / "theirs"


def torch_logits(model) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor(TOKENS)).logits.float().numpy()


def rms(x: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(x))))


@pytest.mark.parametrize("stored", CONFIGS, indirect=True)
def test_logits_and_stored_tensors_equal_those_of_transformers(stored, tmp_path):
    theirs, folder = stored
    model, params = load_pretrained(folder)
    logits, expected = model.apply({"params": params}, jnp.asarray(TOKENS)), torch_logits(theirs)
    assert 0.5 < expected.std() < 2
    np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-4)

    save_pretrained(tmp_path / "ours", model, params)
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", attn_implementation="eager")
    assert type(again) is type(theirs)
    np.testing.assert_array_equal(torch_logits(again), expected)
    written, original = (safetensors.numpy.load_file(f / "model.safetensors") for f in (tmp_path / "ours", folder))
    assert written.keys() == original.keys()
    for name, tensor in original.items():
        np.testing.assert_array_equal(written[name], tensor, err_msg=name)


@pytest.mark.parametrize("stored", ONE_OF_EACH, indirect=True)
def test_bfloat16_is_as_accurate_as_that_of_transformers(stored):
    """Both round differently, so single logits differ by several roundings; their size over all logits is compared."""
    theirs, folder = stored
    exact = torch_logits(theirs)
    expected = torch_logits(theirs.to(torch.bfloat16))
    model, params = load_pretrained(folder, dtype="bfloat16")
    logits = model.apply({"params": params}, jnp.asarray(TOKENS))
    assert rms(logits - expected) <= 2e-2
    assert rms(logits - exact) <= 1.15 * rms(expected - exact)


@pytest.mark.parametrize("stored", ONE_OF_EACH, indirect=True)
def test_greedy_generation_equals_that_of_transformers(stored):
    """64 tokens after prompts of unequal length, well beyond the original context of the scaled RoPE."""
    theirs, folder = stored
    lengths, new = (3, 40, 17, 1), 64
    prompts = [row[:length].tolist() for row, length in zip(np.vstack([TOKENS, TOKENS + 1]) % 97, lengths, strict=True)]
    padded = torch.tensor([[0] * (max(lengths) - len(p)) + p for p in prompts])  # transformers pads on the left
    mask = torch.tensor([[0] * (max(lengths) - len(p)) + [1] * len(p) for p in prompts])
    expected = theirs.generate(
        padded, attention_mask=mask, do_sample=False, min_new_tokens=new, max_new_tokens=new, pad_token_id=0
    )
    model, params = load_pretrained(folder)
    completions = generate(
        model, params, prompts, num_generations=1, max_new_tokens=new, key=jax.random.key(0), temperature=0.0
    )
    np.testing.assert_array_equal(completions.tokens[:, 0], expected[:, max(lengths) :])


@pytest.mark.parametrize("stored", ONE_OF_EACH, indirect=True)
def test_gradients_equal_those_of_transformers(stored, tmp_path):
    """The loss is the mean cross-entropy. Our gradients are saved as a model, to bring them into the stored layout."""
    theirs, folder = stored
    theirs(torch.tensor(TOKENS), labels=torch.tensor(TOKENS)).loss.backward()
    model, params = load_pretrained(folder)

    @jax.jit
    @jax.grad
    def gradient(params):
        ones = jnp.ones(len(TOKENS), jnp.int32)
        return -token_logprobs(model, params, jnp.asarray(TOKENS), ones, 127 * ones, chunk_size=32).mean()

    save_pretrained(tmp_path / "gradients", model, gradient(params))
    ours = safetensors.numpy.load_file(tmp_path / "gradients" / "model.safetensors")
    for name, parameter in theirs.named_parameters():
        expected = parameter.grad.numpy()
        assert rms(ours[name] - expected) <= 1e-3 * rms(expected), name
