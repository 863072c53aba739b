import json
import tracemalloc
from typing import ClassVar

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from pods_jax.errors import UserError
from pods_jax.models.decoder import Decoder, ModelConfig, Weight, model_weights
from pods_jax.models.loading import load_pretrained, save_pretrained
from pods_jax.models.saving import StoredTensor, plan_shards, write_folder

CONFIG = ModelConfig(
    vocab_size=19,
    hidden_size=12,
    intermediate_size=10,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=6,
)


def random_params(config: ModelConfig, seed: int = 0):
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda w: jnp.asarray(rng.normal(size=w.shape), jnp.float32),
        model_weights(config),
        is_leaf=lambda x: isinstance(x, Weight),
    )


class FakeTokenizer:
    token_ids: ClassVar = {"eos_token_id": [2, 1], "pad_token_id": 0}

    def save(self, folder):
        (folder / "tokenizer.json").write_text("{}")


class BrokenTokenizer:
    token_ids: ClassVar = {}

    def save(self, folder):
        raise OSError("disk full")


def file_names(folder):
    return sorted(file.name for file in folder.iterdir())


@given(sizes=st.lists(st.integers(1, 20), min_size=1), max_bytes=st.integers(1, 30))
def test_shards_hold_all_tensors_in_order_and_as_many_as_fit(sizes, max_bytes):
    tensors = [StoredTensor(str(i), "w", i, size) for i, size in enumerate(sizes)]
    shards = plan_shards(tensors, max_bytes)
    assert [tensor for shard in shards for tensor in shard] == tensors
    totals = [sum(tensor.nbytes for tensor in shard) for shard in shards]
    assert all(total <= max_bytes or len(shard) == 1 for total, shard in zip(totals, shards, strict=True))
    assert all(total + after[0].nbytes > max_bytes for total, after in zip(totals, shards[1:], strict=False))


def test_sharded_folder_holds_what_the_single_file_does(tmp_path):
    params = random_params(CONFIG)
    write_folder(tmp_path / "one", CONFIG, params)
    write_folder(tmp_path / "many", CONFIG, params, max_shard_bytes=4000)
    shards = sorted((tmp_path / "many").glob("*.safetensors"))
    assert len(shards) > 2
    assert [f.name for f in shards] == [
        f"model-{i:05d}-of-{len(shards):05d}.safetensors" for i in range(1, len(shards) + 1)
    ]
    whole, parts = load_file(tmp_path / "one" / "model.safetensors"), {}
    index = json.loads((tmp_path / "many" / "model.safetensors.index.json").read_text())
    for shard in shards:
        tensors = load_file(shard)
        assert sum(x.nbytes for x in tensors.values()) <= 4000
        assert {index["weight_map"][name] for name in tensors} == {shard.name}
        parts |= tensors
    assert index["metadata"]["total_size"] == sum(x.nbytes for x in whole.values())
    assert parts.keys() == whole.keys()
    jax.tree.map(np.testing.assert_array_equal, load_pretrained(tmp_path / "many")[1], params)


def test_a_new_model_replaces_the_old_one_and_nothing_else(tmp_path):
    write_folder(tmp_path, CONFIG, random_params(CONFIG), max_shard_bytes=4000)
    for name in ("README.md", "model_of_mine.safetensors"):
        (tmp_path / name).write_text("kept")
    params = random_params(CONFIG, seed=1)
    save_pretrained(tmp_path, Decoder(CONFIG), params, tokenizer=FakeTokenizer())
    assert file_names(tmp_path) == [
        "README.md", "config.json", "model.safetensors", "model_of_mine.safetensors", "tokenizer.json"
    ]  # fmt: skip
    jax.tree.map(np.testing.assert_array_equal, load_pretrained(tmp_path)[1], params)


def test_a_failed_save_leaves_the_old_model(tmp_path):
    params = random_params(CONFIG)
    write_folder(tmp_path, CONFIG, params)
    before = file_names(tmp_path)
    with pytest.raises(OSError, match="disk full"):
        save_pretrained(tmp_path, Decoder(CONFIG), random_params(CONFIG, seed=1), tokenizer=BrokenTokenizer())
    assert file_names(tmp_path) == before
    jax.tree.map(np.testing.assert_array_equal, load_pretrained(tmp_path)[1], params)


def test_a_save_cut_off_while_files_move_in_is_seen(tmp_path, monkeypatch):
    write_folder(tmp_path, CONFIG, random_params(CONFIG), max_shard_bytes=4000)
    moved = []

    def replace(source, target):
        if moved:
            raise KeyboardInterrupt
        moved.append(source.rename(target))

    monkeypatch.setattr("os.replace", replace)
    with pytest.raises(KeyboardInterrupt):
        write_folder(tmp_path, CONFIG, random_params(CONFIG, seed=1), max_shard_bytes=4000)
    with pytest.raises(UserError, match=r"config\.json: no such file"):
        load_pretrained(tmp_path)


def peak_host_bytes(work) -> int:
    """Most bytes that Python and numpy held at a time; what XLA allocates is not counted."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_host_holds_a_tensor_when_loading_and_a_shard_when_saving(tmp_path):
    config = ModelConfig(64, 256, 1024, 12, 4, 4, 64)
    params = random_params(config)
    model_bytes, tensor_bytes = sum(x.nbytes for x in jax.tree.leaves(params)), 4 * 256 * 1024
    shard_bytes = model_bytes // 6
    write = peak_host_bytes(lambda: write_folder(tmp_path, config, params, max_shard_bytes=shard_bytes))
    assert (
        shard_bytes < write < 2 * shard_bytes + 3 * tensor_bytes
    )  # its arrays, and the bytes that safetensors makes of them
    load_pretrained(tmp_path)  # compiles
    assert tensor_bytes < peak_host_bytes(lambda: load_pretrained(tmp_path)) < 5 * tensor_bytes < model_bytes / 8
