"""What the compiler says of memory; the rest of it is tested in test_plan_command."""

import pytest

from pods_jax.planning.step_plan import overflow

IN_ALL = (
    "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. "
    "Used 20.72G of 15.75G hbm. Exceeded hbm capacity by 4.97G."
)
TEMPORARIES = (
    "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for HLO temporaries (20.72G) exceeds "
    "available HBM (15.75G)."
)


@pytest.mark.parametrize("message", [IN_ALL, TEMPORARIES])
def test_a_program_that_is_too_large_says_how_large(message):
    memory = overflow(message, beside=5)
    assert not memory.fits
    assert memory.temporaries == int(20.72 * 2**30)
    assert memory.peak == memory.temporaries + 5


def test_other_errors_are_none_of_memory():
    assert overflow("INTERNAL: something else", beside=0) is None
