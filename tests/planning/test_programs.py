"""The program that is planned for is the one that is run."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest

from pods_jax.config.schema import Config, RolloutConfig, from_mapping
from pods_jax.models.decoder import Decoder, ModelConfig, init_params
from pods_jax.parallel import batch_sharding, make_mesh, replicated
from pods_jax.planning import flops
from pods_jax.planning.generation import generation, lower_first_chunk, lower_last_chunk, lower_resumption
from pods_jax.planning.programs import batch_shapes, programs
from pods_jax.planning.run_shapes import run_shapes
from pods_jax.rollout import generate, sampler
from pods_jax.rollout.draw import Drawing
from pods_jax.rollout.layout import block_tokens, kv_bytes
from pods_jax.rollout.passes import longest_passes, make_room
from pods_jax.rollout.weights import unstacked

CONFIG = ModelConfig(16, 8, 8, 1, 2, 1, 4)
P, N, S, T = 3, 8, 4, 9
TWO_BLOCKS = 2 * kv_bytes(CONFIG, jnp.float32) * block_tokens(4, S, T)


def arguments(tree):
    return [(x.shape, x.dtype) for x in jax.tree.leaves(tree)]


@pytest.mark.parametrize(
    ("chunk_size", "budget", "passes"), [(2, None, 1), (4, TWO_BLOCKS, 3), (1, TWO_BLOCKS, 5), (64, None, 1)]
)
def test_the_last_program_of_a_call_is_lowered_from_shapes(monkeypatch, chunk_size, budget, passes):
    """Its arguments, and how many passes there are; no completion ends early, as no token ends one."""
    called = []

    def record(name):
        program = getattr(sampler, name)

        def recording(*args, **static):
            called.append((name, arguments(args[1:])))  # without the model's configuration
            return program(*args, **static)

        monkeypatch.setattr(sampler, name, recording)

    for name in ("begin", "proceed", "resume"):
        record(name)
    model = Decoder(CONFIG)
    params = init_params(model, jax.random.key(0))
    options = {"chunk_size": chunk_size, "max_cache_bytes_per_device": budget}
    sharding = batch_sharding(make_mesh(devices=jax.devices()[:1]))
    prompts = [[1] * S] * P
    generate(
        model, params, prompts, num_generations=N, max_new_tokens=T, key=jax.random.key(0), sharding=sharding, **options
    )

    room = make_room([N] * P, kv_bytes(CONFIG, jnp.float32), S, T, 1, chunk_size, budget)
    planned = list(longest_passes(room, [N] * P))
    whole = replicated(sharding.mesh)
    shapes = jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=whole), unstacked(params))
    options = {"drawing": Drawing(False, 0, 1.0, (), 0)}
    assert [name for name, _ in called if name != "proceed"] == ["resume" if one.start else "begin" for one in planned]
    assert len(planned) == passes
    first = lower_first_chunk(CONFIG, shapes, planned[0], room, sharding, **options)
    assert ("begin", arguments(first.args_info)) == called[0]
    if chunk_size < T:
        last = lower_last_chunk(CONFIG, shapes, planned[-1], room, sharding, **options)
        assert ("proceed", arguments(last.args_info)) in called
        assert called[-1][0] == "proceed"
    if planned[-1].start:
        resumption = lower_resumption(CONFIG, shapes, planned[-1], room, sharding, **options)
        assert ("resume", arguments(resumption.args_info)) in called


@pytest.mark.parametrize("T", [4, 8, 9])
def test_the_sampling_programs_together_decode_every_token_once(T):
    """Chunks of 4 tokens: all runs have the arithmetic of prefill and of T tokens with each chunk's cache."""
    rollout = RolloutConfig(
        num_prompts=P, num_generations=N, max_prompt_length=S, max_completion_length=T, chunk_size=4
    )  # fmt: skip
    run = run_shapes(Config(rollout=rollout), jax.devices()[:1])
    found = {program.name: program for program in generation(run)}
    assert list(found) == (["sampling"] if T == 4 else ["prefill", "sampling"])
    rooms = {4: [], 8: [(4, 8)], 9: [(4, 8), (1, 9)]}[T]
    cached = 3 * 4 + sum(tokens * room for tokens, room in rooms)
    c = run.model.config
    expected = flops.prefill_flops(c, P, S) + flops.decode_flops(c, P * N, S, T, cached)
    assert sum(program.flops * program.runs for program in found.values()) == pytest.approx(expected)
    if T == 9:
        last = found["sampling"]
        assert (last.runs, last.unknown_trips) == (2, 3)
        token = last.given["KV cache"] / (P * N * 9 + 2 * P * S)  # blocks of 4 rollouts hold their prompt again
        assert last.spared_bytes == pytest.approx(4 * P * N * token / 2)


def test_passes_that_go_to_milestones_have_programs_of_their_own():
    """In two blocks' room: two passes of three blocks to 3 tokens, three of two from there to 9."""
    rollout = RolloutConfig(
        num_prompts=P, num_generations=N, max_prompt_length=S, max_completion_length=T, chunk_size=1
    )  # fmt: skip
    c = run_shapes(Config(rollout=rollout), jax.devices()[:1]).model.config
    token = kv_bytes(c, jnp.float32)
    rollout = dataclasses.replace(rollout, max_cache_bytes_per_device=2 * token * block_tokens(4, S, T))
    found = {p.name: p for p in generation(run_shapes(Config(rollout=rollout), jax.devices()[:1]))}
    assert {name: p.runs for name, p in found.items()} == {
        "prefill": 2, "resumption": 3, "early sampling": 2 * 2, "sampling": 3 * 6,
    }  # fmt: skip
    assert found["early sampling"].given["KV cache"] == token * 3 * (4 * 3 + S)
    assert found["sampling"].given["KV cache"] == token * 2 * (4 * 9 + S)
    cached = 2 + 3 + 4 + 6 + 6 + 8 + 8 + 9
    expected = flops.prefill_flops(c, P, S) + flops.decode_flops(c, P * N, S, T, cached)
    decoding = sum(p.flops * p.runs for name, p in found.items() if name != "resumption")
    assert decoding == pytest.approx(expected)
    again = flops.matrix_flops(c, P * N * 3) + flops.attention_flops(c, P * N * 3, S + 4)
    assert found["resumption"].flops * 3 == pytest.approx(again + flops.prefill_flops(c, 3, S))


def test_a_later_turn_is_planned_with_all_that_came_before_as_its_prompt(tiny):
    """Every rollout has a prompt of its own then: 5 tokens of the problem and 4 of turns, in a bucket of 12."""
    tiny.environment.name, tiny.environment.max_turns = "calculator", 1
    devices = jax.devices()[:1]
    one_turn = [p.name for p in programs(run_shapes(from_mapping(tiny)[0], devices))]
    assert one_turn == ["sampling", "update"]
    tiny.environment.max_turns = 2
    run = run_shapes(from_mapping(tiny)[0], devices)
    first, later, update = programs(run)
    assert later.name == "later turn"
    token = kv_bytes(run.model.config, jnp.float32)
    assert first.within["KV cache"] == token * (4 * 6 + 4 * 8 * 4)
    assert later.within["KV cache"] == token * 4 * 8 * (12 + 4)
    assert batch_shapes(run).loss_mask.shape == batch_shapes(run).completions.shape
    assert update.name == "update"


def test_entropies_are_planned_where_they_choose_the_tokens(tiny):
    """They are the policy's, of each optimizer step's rollouts, and the update gets a mask of the tokens."""
    tiny.objective.steps_per_generation = 2
    devices = jax.devices()[:1]
    run = run_shapes(from_mapping(tiny)[0], devices)
    assert [p.name for p in programs(run)] == ["sampling", "rescoring", "update"]
    assert batch_shapes(run).policy_mask is None
    tiny.objective.top_entropy_quantile = 0.5
    run = run_shapes(from_mapping(tiny)[0], devices)
    found = {p.name: p for p in programs(run)}
    assert list(found) == ["sampling", "rescoring", "entropies", "update"]
    assert (found["rescoring"].runs, found["entropies"].runs) == (1, 2)
    assert found["entropies"].flops == found["rescoring"].flops
    lowered = {name: found[name].lower() for name in ("rescoring", "entropies")}
    assert arguments(lowered["entropies"].args_info) == arguments(lowered["rescoring"].args_info)
    assert lowered["entropies"].as_text() != lowered["rescoring"].as_text()
    batch = batch_shapes(run)
    assert arguments(batch.policy_mask) == [(batch.completions.shape, "bool")]
