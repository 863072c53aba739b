"""What the compiler says of memory; the rest of it is tested in test_plan_command."""

from pods_jax.planning.memory import overflow

MESSAGE = (
    "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in memory space hbm. "
    "Used 20.72G of 15.75G hbm. Exceeded hbm capacity by 4.97G."
)


def test_a_program_that_is_too_large_says_how_large():
    memory = overflow(MESSAGE, beside=5)
    assert not memory.fits
    assert memory.temporaries == int(20.72 * 2**30)
    assert memory.peak == memory.temporaries + 5


def test_other_errors_are_none_of_memory():
    assert overflow("INTERNAL: something else", beside=0) is None
