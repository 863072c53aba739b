"""The parser of programs; run as a script, the child that compiles for eight simulated devices."""

import json
import os
import subprocess
import sys

import pytest

from pods_jax.planning.collectives import group_size, traffic
from pods_jax.planning.hlo import array_bytes

SIZE, LOOPS, DEVICES = 64, 5, 8


def test_bytes_of_types():
    assert array_bytes("f32[8,512]{1,0:T(8,128)}") == 8 * 512 * 4
    assert array_bytes("(bf16[3,2]{1,0:T(8,128)(2,1)}, s32[], pred[7], f8e4m3fn[5], s4[6])") == 12 + 4 + 7 + 5 + 3


@pytest.mark.parametrize(
    "attributes",
    [
        "channel_id=1, replica_groups={{0,1,2,3},{4,5,6,7}}, use_global_device_ids=true",
        "channel_id=1, replica_groups=[2,4]<=[8], dimensions={0}",
        "replica_groups=mesh['axis_0'=2,'axis_1'=2,'axis_2'=2] {'axis_0','axis_2'}, to_apply=%add",
        "replica_groups=mesh['a'=2,'b'=2,'c'=2], device_ids=([2,2,2]T(2,1,0)) {'a','b'}, to_apply=%add",
    ],
)
def test_sizes_of_groups(attributes):
    assert group_size(attributes) == 4


def test_asynchronous_collectives_count_once_and_without_their_operand():
    program = """
ENTRY %main (p: f32[16]) -> f32[64] {
  %start = (f32[16]{0}, f32[64]{0}) all-gather-start(%p), replica_groups=[1,4]<=[4], dimensions={0}
  ROOT %done = f32[64]{0} all-gather-done(%start)
}
"""
    assert traffic(program) == {"all-gather": (1, 64 * 4 * 3 / 4)}


def test_what_a_tpu_sends_where_each_device_keeps_a_part_of_a_sum():
    program = """
%all-reduce-scatter.1 (input: f32[64]) -> f32[16] {
  %sum = f32[64]{0} all-reduce(%input), replica_groups={{0,1,2,3}}, to_apply=%add
  ROOT %part = f32[16]{0} dynamic-slice(%sum, %start), dynamic_slice_sizes={16}
}

ENTRY %main (p: f32[64]) -> f32[16] {
  ROOT %fusion = f32[16]{0} fusion(%p), kind=kCustom, calls=%all-reduce-scatter.1
}
"""
    assert traffic(program) == {"reduce-scatter": (1, 64 * 4 * 3 / 4)}


ASYNCHRONOUS = """
%begins (input: bf16[1,256]) -> (bf16[1,256], bf16[1,2048]) {
  %input = bf16[1,256]{1,0} parameter(0)
  %gathered = bf16[1,2048]{1,0} all-gather(%input), channel_id=177, replica_groups=[1,8]<=[8], dimensions={1}
  ROOT %handle = (bf16[1,256]{1,0}, bf16[1,2048]{1,0}) custom-call(%input, %gathered), custom_call_target="start"
}

%async_collective_fusion.1 (input: bf16[1,256], x: f32[4]) -> (f32[4], bf16[1,2048]) {
  %input = bf16[1,256]{1,0} parameter(0)
  %x = f32[4]{0} parameter(1)
  %work = f32[4]{0} tanh(%x)
  %gathered = bf16[1,2048]{1,0} all-gather(%input), channel_id=177, replica_groups=[1,8]<=[8], dimensions={1}
  ROOT %both = (f32[4]{0}, bf16[1,2048]{1,0}) tuple(%work, %gathered)
}

%ends (input: bf16[1,256]) -> bf16[1,2048] {
  %input = bf16[1,256]{1,0} parameter(0)
  %gathered = bf16[1,2048]{1,0} all-gather(%input), channel_id=177, replica_groups=[1,8]<=[8], dimensions={1}
  ROOT %result = bf16[1,2048]{1,0} custom-call(%gathered), custom_call_target="done"
}

%inner (b: (s32[], bf16[1,256])) -> (s32[], bf16[1,256]) {
  %b = (s32[], bf16[1,256]{1,0}) parameter(0)
  ROOT %f = (f32[4]{0}, bf16[1,2048]{1,0}) fusion(%b), kind=kCustom, calls=%async_collective_fusion.1
}

%outer (o: (s32[], bf16[1,256])) -> (s32[], bf16[1,256]) {
  %o = (s32[], bf16[1,256]{1,0}) parameter(0)
  %async-collective-start = (bf16[1,256]{1,0}, bf16[1,2048]{1,0}) fusion(%o), kind=kCustom, calls=%begins
  %beside = (f32[4]{0}, bf16[1,2048]{1,0}) fusion(%o), kind=kCustom, calls=%async_collective_fusion.1
  %loop = (s32[], bf16[1,256]{1,0}) while(%o), condition=%c, body=%inner, BACKEND3
  %async-collective-done = bf16[1,2048]{1,0} fusion(%o), kind=kCustom, calls=%ends
}

ENTRY %main (p: bf16[1,256]) -> bf16[1,256] {
  %p = (s32[], bf16[1,256]{1,0}) parameter(0)
  ROOT %layers = (s32[], bf16[1,256]{1,0}) while(%p), condition=%c, body=%outer, BACKEND5
}
"""


def test_a_collective_beside_other_work_runs_once_in_each_iteration():
    """A gather of one channel begins, goes on in a fusion and in a loop of three iterations, and ends: five times."""
    text = ASYNCHRONOUS
    for trips in (3, 5):
        text = text.replace(f"BACKEND{trips}", f'backend_config={{"known_trip_count":{{"n":"{trips}"}}}}')
    assert traffic(text) == {"all-gather": (5, 5 * 2048 * 2 * 7 / 8)}


def test_a_condition_that_only_counts_says_how_often_a_loop_runs():
    """TPU programs do not say it in so many words; a loop that may end early runs as often as the caller says."""
    program = """
%counts (a: (s32[], f32[4])) -> pred[] {
  %limit = s32[]{:T(128)} constant(7)
  %i = s32[]{:T(128)} get-tuple-element(%a), index=0
  ROOT %lt = pred[]{:T(512)} compare(%i, %limit), direction=LT
}

%body (b: (s32[], f32[4])) -> (s32[], f32[4]) {
  %sum = f32[4]{0} all-reduce(%x), replica_groups={{0,1}}, to_apply=%add
}

%ends (c: (s32[], f32[4])) -> pred[] {
  %limit2 = s32[]{:T(128)} constant(9)
  %lt2 = pred[]{:T(512)} compare(%i, %limit2), direction=LT
  ROOT %and = pred[]{:T(512)} and(%lt2, %not)
}

ENTRY %main (p: f32[4]) -> f32[4] {
  %w = (s32[], f32[4]{0}) while(%t), condition=%counts, body=%body
  ROOT %v = (s32[], f32[4]{0}) while(%t), condition=%ends, body=%body
}
"""
    assert traffic(program, unknown_trips=3)["all-reduce"] == (7 + 3, (7 + 3) * 16)


def test_of_the_branches_of_a_condition_only_the_one_that_sends_the_most_counts():
    """In either order, and in calls within calls."""
    for branches in ("%none, %small, %large", "%large, %small, %none", "%small, %large, %none"):
        program = """
%none (a: f32[4]) -> f32[4] {
  ROOT %same = f32[4]{0} copy(%a)
}

%small (b: f32[4]) -> f32[4] {
  ROOT %sum = f32[4]{0} all-reduce(%b), replica_groups={{0,1}}, to_apply=%add
}

%inner (c: f32[64]) -> f32[64] {
  ROOT %sum = f32[64]{0} all-reduce(%c), replica_groups={{0,1}}, to_apply=%add
}

%large (d: f32[64]) -> f32[64] {
  ROOT %called = f32[64]{0} call(%d), to_apply=%inner
}

ENTRY %main (p: f32[4]) -> f32[4] {
  ROOT %c = f32[4]{0} conditional(%i, %x, %y, %z), branch_computations={BRANCHES}
}
""".replace("BRANCHES", branches)
        assert traffic(program) == {"all-reduce": (1, 64 * 4)}


@pytest.fixture(scope="module")
def measured():
    """The traffic of a program of known collectives, compiled for eight devices."""
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(DEVICES), "JAX_PLATFORMS": "cpu"}
    child = subprocess.run([sys.executable, __file__], env=environment, capture_output=True, text=True, timeout=300)
    assert child.returncode == 0, child.stderr
    return json.loads(child.stdout)


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("all-reduce", [LOOPS, LOOPS * 2 * SIZE * 4 * 7 / 8]),
        ("all-gather", [1, 8 * SIZE * 4 * 7 / 8]),
        ("collective-permute", [1, SIZE * 4]),
        ("all-to-all", [1, SIZE * 4 * 7 / 8]),
        ("reduce-scatter", [1, SIZE * 4 * 7 / 8]),
    ],
)
def test_a_compiled_programs_traffic(measured, kind, expected):
    assert measured[kind] == expected


def main():
    import jax
    from jax import lax

    mesh = jax.make_mesh((DEVICES,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))

    def body(x):
        x, _ = lax.scan(lambda x, _: (lax.pcast(lax.psum(x * x, "x"), "x", to="varying"), None), x, length=LOOPS)
        gathered = lax.all_gather(x, "x").sum(0)
        ring = lax.ppermute(gathered, "x", [(i, (i + 1) % DEVICES) for i in range(DEVICES)])
        swapped = lax.all_to_all(ring.reshape(DEVICES, -1), "x", 0, 0)
        return lax.psum_scatter(swapped.ravel(), "x", tiled=True)

    program = jax.jit(jax.shard_map(body, mesh=mesh, in_specs=jax.P("x"), out_specs=jax.P("x")))
    text = program.lower(jax.ShapeDtypeStruct((DEVICES * SIZE,), "float32")).compile().as_text()
    print(json.dumps(traffic(text)))


if __name__ == "__main__":
    main()
