"""Caches of warm starts and compiled programs, shared by runs; and release of the memory that compilation used."""

import ctypes
import functools
import hashlib
import os
import platform
import sys
from pathlib import Path

from pods_jax.processor import processor_kind


def cache_folder(name: str) -> Path:
    """$PODS_JAX_CACHE/NAME, or pods_jax/NAME in the user's cache folder."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("PODS_JAX_CACHE") or Path(base) / "pods_jax") / name


def programs_folder() -> Path:
    """Folder of compiled programs, one for each kind of processor, since machines may share a home folder."""
    kind = hashlib.sha256(str(processor_kind()).encode()).hexdigest()[:12]
    return cache_folder("programs") / f"{platform.machine()}-{kind}"


def keep_programs() -> None:
    """Makes JAX store programs that take half a second or more to compile, in at most 4 GB, for later processes.

    PODS_JAX_PROGRAMS=0 switches it off, and the user's JAX_COMPILATION_CACHE_DIR replaces the folder. Programs are run
    as they are found, so only the user may write to the folder. JAX locks it, as it is bounded in size, for processes
    that share it. A process that cannot write to it compiles its programs.
    """
    if os.environ.get("PODS_JAX_PROGRAMS") == "0" or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    import jax

    folder = programs_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        print(f"note: compiled programs are not kept for the next run: {error}", file=sys.stderr)
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_compilation_cache_max_size", 4 * 2**30)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


# ---------------------------------------------------------------- memory


@functools.cache
def trim_after_compiling() -> None:
    """From now on, returns memory to the system after each compilation of half a second or more (with glibc).

    glibc's allocator would keep it: 0.3 GB after the update of a model of 135 million parameters, beside 1.6 GB of
    state.
    """
    import jax

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is None:
        return

    def after(event: str, duration_s: float, **_) -> None:
        if event == "/jax/core/compile/backend_compile_duration" and duration_s >= 0.5:
            trim(0)

    jax.monitoring.register_event_duration_secs_listener(after)
