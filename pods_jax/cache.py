"""Caches of warm starts and compiled programs, shared by runs; and release of the memory that compilation used."""

import contextlib
import ctypes
import functools
import hashlib
import os
import platform
import shutil
import stat
import sys
import zlib
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
    as they are found, so a folder that others may write to is not used. JAX locks it, as it is bounded in size, for
    processes that share it. A process that cannot use it compiles its programs.
    """
    if os.environ.get("PODS_JAX_PROGRAMS") == "0" or "JAX_COMPILATION_CACHE_DIR" in os.environ:
        return
    import jax

    folder = programs_folder()
    try:
        make_private(folder)
        remove_damaged(folder)
    except OSError as error:
        print(f"note: compiled programs are not kept for the next run: {error}", file=sys.stderr)
        return
    jax.config.update("jax_compilation_cache_dir", str(folder))
    jax.config.update("jax_compilation_cache_max_size", 4 * 2**30)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.5)


def make_private(folder: Path) -> None:
    """Makes a folder, and those it lies in, that only the user can enter.

    Raises:
      OSError: it cannot be made, or exists and is another user's or one that others may write to.
    """
    for parent in reversed([folder, *folder.parents]):
        with contextlib.suppress(FileExistsError):
            parent.mkdir(mode=0o700)
    status = folder.stat()
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(f"{folder} is not a folder")
    if status.st_uid != os.geteuid() or status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(f"{folder} is a folder that others may write to (chmod go-w makes it usable)")


# ---------------------------------------------------------------- JAX's entries


CHECKED_BYTES = 64 * 2**20
"""Bytes of the programs, the last used first, that are unpacked at the start to see if they are whole: 0.5 s."""

LOCK_S = 10.0
"""Seconds to wait for another process that uses the cache; after them nothing is checked."""

_PROGRAM = "-cache"
_LAST_USE = "-atime"


def remove_damaged(folder: Path) -> None:
    """Removes what would stay damaged for ever in a folder of JAX's compilation cache, so that it is written anew.

    JAX writes an entry as two files: the program, and the time of its last use. It reads the times of all before it
    writes one, and never writes over an entry. So a single file of a pair, which a kill leaves behind, keeps it from
    storing anything, and a damaged program is compiled again in each process.

    Raises:
      OSError: the system refuses.
    """
    import filelock  # as JAX does, and only where the cache is used

    with contextlib.suppress(filelock.Timeout), filelock.FileLock(folder / ".lockfile", timeout=LOCK_S):
        programs = _named(folder, _PROGRAM)
        uses = _named(folder, _LAST_USE)
        for name in programs ^ uses:
            _discard(folder, name)
        left = CHECKED_BYTES
        for name in sorted(programs & uses, key=lambda name: -(folder / f"{name}{_LAST_USE}").stat().st_mtime):
            left -= (folder / f"{name}{_PROGRAM}").stat().st_size
            if left < 0:
                break
            if not _is_whole(folder / f"{name}{_PROGRAM}", folder / f"{name}{_LAST_USE}"):
                _discard(folder, name)


def _named(folder: Path, suffix: str) -> set[str]:
    return {path.name.removesuffix(suffix) for path in folder.glob(f"*{suffix}")}


def _is_whole(program: Path, last_use: Path) -> bool:
    """True if both files can be read, and the program unpacked; zlib's format holds a checksum."""
    try:
        last_use.read_bytes()
        packed = program.read_bytes()
        if packed[:4] != _ZSTD:
            unpacking = zlib.decompressobj()
            unpacking.decompress(packed)
            return unpacking.eof
    except (OSError, zlib.error):
        return False
    return _zstd_is_whole(packed)


_ZSTD = b"\x28\xb5\x2f\xfd"
"""The first bytes of a file in zstd's format, in which JAX packs programs where the library is installed."""


def _zstd_is_whole(packed: bytes) -> bool:
    try:
        import zstandard
    except ImportError:  # JAX cannot read it either, and names its own entries differently
        return True
    try:
        zstandard.ZstdDecompressor().decompress(packed)
    except zstandard.ZstdError:
        return False
    return True


def _discard(folder: Path, name: str) -> None:
    for path in (folder / f"{name}{_PROGRAM}", folder / f"{name}{_LAST_USE}"):
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)


# ---------------------------------------------------------------- memory


def release_memory() -> None:
    """Returns to the system what glibc's allocator keeps of memory that was freed; nothing with other ones."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@functools.cache
def trim_after_compiling() -> None:
    """From now on, returns memory to the system after each compilation of half a second or more (with glibc).

    glibc's allocator would keep it: 0.3 GB after the update of a model of 135 million parameters, beside 1.6 GB of
    state.
    """
    import jax

    def after(event: str, duration_s: float, **_) -> None:
        if event == "/jax/core/compile/backend_compile_duration" and duration_s >= 0.5:
            release_memory()

    jax.monitoring.register_event_duration_secs_listener(after)
