"""Files that claim more than they hold: each is one line, within a second and 200 MB, in a process of its own.

Time is processor time, as the machine may be loaded; memory is what the process gained at its peak.
"""

import json
import subprocess
import sys

import gguf
import jax
import pytest

from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.models.loading import save_pretrained

CONFIG = ModelConfig(19, 12, 10, 2, 4, 2, 6)
SECONDS, MEGABYTES = 1.0, 200
LOAD = """
import json, resource, sys, time
import gguf, jax, numpy, tokenizers, pods_jax.data.gguf_tokenizer
from pods_jax.data.tokenizers import load_tokenizer
from pods_jax.errors import UserError
from pods_jax.models.loading import load_pretrained
from pods_jax.models.peft_adapter import load_adapter
from pods_jax.models.shapes import SHAPES
from pods_jax.models.decoder import ModelConfig
jax.numpy.zeros(1).block_until_ready()
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
load = {"model": load_pretrained, "tokenizer": load_tokenizer,
        "adapter": lambda path: load_adapter(path, ModelConfig(19, 12, 10, 2, 4, 2, 6))}
for kind, path in json.loads(sys.stdin.read()):
    memory, start = peak(), time.process_time()
    try:
        load[kind](path)
        error = None
    except UserError as e:
        error = str(e)
    print(json.dumps([error, time.process_time() - start, peak() - memory]), flush=True)
"""


def hostile_gguf(path, tokenizer: bool = False, **metadata):
    """Some hundred bytes: metadata of a Llama, and one tensor."""
    writer = gguf.GGUFWriter(path, "llama")
    values = {
        "context_length": 64, "embedding_length": 12, "block_count": 2, "feed_forward_length": 10,
        "attention.head_count": 4, "attention.head_count_kv": 2, "attention.key_length": 6,
        "attention.value_length": 6, "vocab_size": 19,
    }  # fmt: skip
    for name, value in (values | metadata).items():
        writer.add_uint64(f"llama.{name}", value)
    writer.add_float32("llama.attention.layer_norm_rms_epsilon", 1e-5)
    if tokenizer:
        writer.add_tokenizer_model("gpt2")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def claims(folder) -> dict[str, tuple[str, str]]:
    """Hostile files by name: what is loaded, and the path."""
    base = folder / "base"
    save_pretrained(base, Decoder(CONFIG), init_params(Decoder(CONFIG), jax.random.key(0)))
    raw = json.loads((base / "config.json").read_text())
    changes = {
        "two million layers": {"num_hidden_layers": 2_000_000},
        "most layers": {"num_hidden_layers": 2**31 - 1},
        "an MLP of 10^10": {"intermediate_size": 10**10},
        "an MLP of 2^31 - 1": {"intermediate_size": 2**31 - 1},
        "a vocabulary of 10^12": {"vocab_size": 10**12},
        "a vocabulary of 2^31 - 1": {"vocab_size": 2**31 - 1},
        "heads": {"num_attention_heads": 2**30, "num_key_value_heads": 2**30},
        "a head": {"head_dim": 2**31 - 2},
        "everything": dict.fromkeys(("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers"), 2**31 - 1),
    }
    found = {}
    for name, change in changes.items():
        target = folder / name
        target.mkdir()
        (target / "model.safetensors").symlink_to(base / "model.safetensors")
        (target / "config.json").write_text(json.dumps(raw | change))
        found[name] = ("model", str(target))
    for name, value in (("block_count", 2**31), ("block_count", 2**31 - 1), ("embedding_length", 2**31 - 2),
                        ("attention.key_length", 2**31 - 2), ("vocab_size", 2**31 - 1)):  # fmt: skip
        file = folder / f"{name} {value}.gguf"
        hostile_gguf(file, **{name: value})
        found[file.name] = ("model", str(file))
    for name, content in headers().items():
        (folder / f"{name}.gguf").write_bytes(content)
        found[name] = ("model", str(folder / f"{name}.gguf"))
    adapter = folder / "adapter"
    adapter.mkdir()
    (adapter / "adapter_model.safetensors").symlink_to(base / "model.safetensors")
    settings = {"peft_type": "LORA", "r": 2**31 - 1, "lora_alpha": 8, "target_modules": ["q_proj"]}
    (adapter / "adapter_config.json").write_text(json.dumps(settings))
    found["adapter"] = ("adapter", str(adapter))
    return found


def headers() -> dict[str, bytes]:
    """GGUF files whose counts are beyond their ends."""

    def number(value: int, size: int = 8) -> bytes:
        return value.to_bytes(size, "little")

    start, key = b"GGUF" + number(3, 4), number(1) + b"k"
    array, string, byte = number(9, 4), number(8, 4), number(0, 4)
    return {
        "tensors 2^62": start + number(2**62) + number(0),
        "keys 2^62": start + number(0) + number(2**62) + key + byte + b"\0",
        "array 2^62": start + number(0) + number(1) + key + array + byte + number(2**62) + b"\0" * 99,
        "string 2^62": start + number(0) + number(1) + key + string + number(2**62) + b"text",
        "nested": start + number(0) + number(1) + key + array + (array + number(1)) * 3000,
        "dims 2^60": start + number(1) + number(0) + key + number(2, 4) + number(2**60) * 2 + number(0, 4) + number(0),
        "dims 0": start
        + number(1)
        + number(0)
        + key
        + number(2, 4)
        + number(2**60)
        + number(0) * 2
        + byte
        + b"\0" * 64,
    }


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    """By name: the error, the seconds and the megabytes."""
    cases = claims(tmp_path_factory.mktemp("hostile"))
    run = subprocess.run(
        [sys.executable, "-c", LOAD], input=json.dumps(list(cases.values())), capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip
    lines = run.stdout.splitlines()
    assert len(lines) == len(cases), f"{list(cases)[len(lines)]}: {run.stderr[-2000:]}"
    return dict(zip(cases, map(json.loads, lines), strict=True))


def test_a_claim_is_compared_with_what_the_files_hold(outcomes):
    for name, (error, seconds, megabytes) in outcomes.items():
        assert error is not None, name
        assert error.isprintable(), name
        assert len(error) < 1000, name
        assert seconds < SECONDS, f"{name}: {seconds} s"
        assert megabytes < MEGABYTES, f"{name}: {megabytes} MB"
