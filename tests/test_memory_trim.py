import ctypes
import subprocess
import sys

import pytest

CHILD = """
import sys
import jax
from pods_jax.cache import trim_after_compiling

def resident_mb():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmRSS")) / 1024

trim_after_compiling()
blocks = [bytearray(1000) for _ in range(200_000)]
last = bytearray(1000)  # keeps the heap from shrinking by itself
del blocks
for seconds in (0.1, 1.0):
    jax.monitoring.record_event_duration_secs("/jax/core/compile/backend_compile_duration", seconds)
    print(resident_mb())
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="not glibc")
def test_a_long_compilation_gives_free_memory_back():
    """Small blocks, freed below one that is not, stay with the process until then."""
    done = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=True)
    before, after = map(float, done.stdout.split())
    assert after < before - 100
