"""Bytes that programs move, against counts by hand and XLA's own count of programs without loops."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from pods_jax.parallel import make_mesh, replicated
from pods_jax.planning.chips import topology_devices
from pods_jax.planning.memory_traffic import moved_bytes

N = 256
F32 = 4


def compiled(f, *shapes, **options):
    arguments = [jax.ShapeDtypeStruct(s, "float32") for s in shapes]
    return jax.jit(f, **options).lower(*arguments).compile()


@pytest.mark.parametrize(
    ("f", "shapes"),
    [
        (lambda a, b: a @ b, [(N, N), (N, N)]),
        (lambda a, b: jnp.tanh(a @ b) + a, [(N, N), (N, N)]),
        (lambda a: jnp.sort(a, -1)[:, :5], [(N, N)]),
        (lambda a: jax.nn.softmax(a, -1), [(N, N)]),
    ],
)
def test_programs_without_loops_count_as_xla_counts_them(f, shapes):
    program = compiled(f, *shapes)
    assert moved_bytes(program.as_text()) == pytest.approx(program.cost_analysis()["bytes accessed"], rel=0.02)


def test_a_scan_reads_each_layer_of_a_stack_once():
    """Weights [L, N, N] are read a layer at a time: not all of them in each of the L iterations."""
    L, rows = 16, 8
    program = compiled(lambda w, x: jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, w)[0], (L, N, N), (rows, N))
    weights = L * N * N * F32
    assert weights <= moved_bytes(program.as_text()) < 3.3 * weights  # the slice may be copied before the product


def test_a_cache_is_written_a_token_at_a_time():
    """The loop writes a row of a donated [T, N] array, and does not move the array."""
    T = 512

    def fill(cache, x):
        def write(t, state):
            cache, x = state
            x = jnp.sin(x)
            return jax.lax.dynamic_update_slice_in_dim(cache, x[None], t, 0), x

        return jax.lax.fori_loop(0, T, write, (cache, x))

    program = compiled(fill, (T, N), (N,), donate_argnums=0)
    assert T * N * F32 <= moved_bytes(program.as_text()) < 10 * T * N * F32


def test_a_loop_that_may_end_early_runs_as_often_as_is_said():
    def decode(x):
        return jax.lax.while_loop(lambda s: (s[0] < 100) & (s[1][0, 0] < 5), lambda s: (s[0] + 1, s[1] @ s[1]), (0, x))

    text = compiled(decode, (N, N)).as_text()
    once, ten = moved_bytes(text, 1), moved_bytes(text, 10)
    assert 9 * 3 * N * N * F32 <= ten - once < 9 * 5 * N * N * F32  # two operands and a result; a CPU copies on top


@pytest.mark.parametrize("dear_first", [False, True])
def test_of_branches_the_dearest_counts(dear_first):
    """One branch multiplies matrices twice, the other returns its argument."""

    def dear(x):
        return jnp.sin(x @ x) @ x

    branches = (dear, jnp.negative) if dear_first else (jnp.negative, dear)
    program = compiled(lambda which, x: jax.lax.cond(which[0] > 0, *branches, x), (1,), (N, N))
    alone = moved_bytes(compiled(dear, (N, N)).as_text())
    assert alone <= moved_bytes(program.as_text()) < 1.5 * alone


def test_an_embedding_is_read_a_row_for_each_token():
    program = compiled(lambda e, ids: e[ids.astype(int)], (50_000, N), (8,))
    assert moved_bytes(program.as_text()) < 10 * 8 * N * F32


def test_what_stays_on_a_chip_is_not_counted():
    program = """
%fused (p0: f32[64]) -> f32[64] {
  %p0 = f32[64]{0} parameter(0)
  ROOT %t = f32[64]{0} tanh(%p0)
}

ENTRY %main (p: f32[64]) -> f32[64] {
  %p = f32[64]{0} parameter(0)
  %start = (f32[64]{0:S(1)}, f32[64]{0}, u32[]{:S(2)}) copy-start(%p)
  %done = f32[64]{0:S(1)} copy-done(%start)
  %inside = f32[64]{0:S(1)} fusion(%done), kind=kLoop, calls=%fused
  ROOT %outside = f32[64]{0} fusion(%inside), kind=kLoop, calls=%fused
}
"""
    assert moved_bytes(program) == 2 * 64 * F32  # read for the copy, written at the end


def test_gathered_weights_are_written_and_read():
    program = """
ENTRY %main (p: f32[16,8], x: f32[4,64]) -> f32[4,8] {
  %p = f32[16,8]{1,0} parameter(0)
  %x = f32[4,64]{1,0} parameter(1)
  %whole = f32[64,8]{1,0} all-gather(%p), replica_groups=[1,4]<=[4], dimensions={0}
  ROOT %product = f32[4,8]{1,0} dot(%x, %whole), lhs_contracting_dims={1}, rhs_contracting_dims={0}
}
"""
    sizes = np.array([16 * 8, 64 * 8, 4 * 64, 64 * 8, 4 * 8])
    assert moved_bytes(program) == sizes.sum() * F32


def test_weights_that_a_fusion_within_a_fusion_only_reshapes_are_read():
    """As TPU programs have it: the inner fusion gives the weights under another shape to the product."""
    program = """
%inner (w: f32[64,32]) -> f32[64,32,1] {
  %w = f32[64,32]{1,0} parameter(0)
  ROOT %b = f32[64,32,1]{1,0,2} bitcast(%w)
}
%outer (x: f32[8,64], w: f32[64,32]) -> f32[8,32] {
  %x = f32[8,64]{1,0} parameter(0)
  %w = f32[64,32]{1,0} parameter(1)
  %renamed = f32[64,32,1]{1,0,2} fusion(%w), kind=kLoop, calls=%inner
  ROOT %product = f32[8,32]{1,0} convolution(%x, %renamed), dim_labels=bf_io->bf
}
ENTRY %main (x: f32[8,64], w: f32[64,32]) -> f32[8,32] {
  %x = f32[8,64]{1,0} parameter(0)
  %w = f32[64,32]{1,0} parameter(1)
  ROOT %f = f32[8,32]{1,0} fusion(%x, %w), kind=kOutput, calls=%outer
}
"""
    assert moved_bytes(program) == (8 * 64 + 64 * 32 + 8 * 32) * F32


def test_a_slice_that_is_fetched_ahead_is_read_and_not_its_source():
    program = """
ENTRY %main (x: f32[64,128]) -> f32[16,128] {
  %x = f32[64,128]{1,0:T(8,128)} parameter(0)
  %s = ((f32[64,128]{1,0:T(8,128)}), f32[16,128]{1,0:T(8,128)S(1)}, s32[]{:S(2)}) slice-start(%x), slice={[0:16]}
  %d = f32[16,128]{1,0:T(8,128)S(1)} slice-done(%s)
  ROOT %n = f32[16,128]{1,0:T(8,128)} negate(%d)
}
"""
    assert moved_bytes(program) == pytest.approx(2 * 16 * 128 * F32, abs=8)  # the slice, and the result


@pytest.mark.parametrize("rows", [1, 64])
def test_a_tpu_reads_every_weight_of_a_decoding_step(rows):
    """A loop of products with two matrices that no chip has room for: XLA counts its body once."""
    pytest.importorskip("libtpu")
    mesh = make_mesh(devices=topology_devices("v5e:1x1"))
    D, F, steps = 4096, 14_336, 8

    def decode(x, up, down):
        return jax.lax.while_loop(lambda s: s[0] < steps, lambda s: (s[0] + 1, jnp.tanh(s[1] @ up) @ down), (0, x))

    shapes = [jax.ShapeDtypeStruct(s, "bfloat16", sharding=replicated(mesh)) for s in ((rows, D), (D, F), (F, D))]
    program = jax.jit(decode).lower(*shapes).compile()
    weights = 2 * D * F * 2
    assert weights <= moved_bytes(program.as_text()) / steps < 1.1 * weights
