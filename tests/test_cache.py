import os
import zlib
from pathlib import Path

import filelock
import forked
import pytest

from pods_jax.cache import cache_folder, make_private, programs_folder, remove_damaged

PROGRAM = """
from pods_jax.cache import keep_programs
keep_programs()
import jax
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name == "/jax/compilation_cache/cache_hits"))
print(float(jax.jit(lambda x: x * 2.0)(4.0)), sum(hits))
"""


def run(folder: Path, python=forked.run, **settings: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    done = python(["-c", PROGRAM], env=environment | {"PODS_JAX_CACHE": str(folder), **settings})
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout.strip() + (" note" if "note:" in done.stderr else "")


def test_the_next_process_loads_what_one_compiled(tmp_path):
    assert run(tmp_path, forked.started) == "8.0 0"
    assert run(tmp_path, forked.started) == "8.0 1"
    [folder] = (tmp_path / "programs").iterdir()
    assert folder.stat().st_mode & 0o077 == 0


def test_it_can_be_switched_off_or_be_elsewhere(tmp_path):
    assert run(tmp_path, PODS_JAX_PROGRAMS="0") == "8.0 0"
    assert not list(tmp_path.iterdir())
    run(tmp_path / "unused", JAX_COMPILATION_CACHE_DIR=str(tmp_path / "own"))
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


def test_a_folder_that_can_not_be_made_is_a_note(tmp_path):
    (tmp_path / "file").touch()
    assert run(tmp_path / "file") == "8.0 0 note"


# ---------------------------------------------------------------- damage


def cut(file):
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def flip_a_bit(file):
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 4
    file.write_bytes(content)


def make_a_folder(file):
    file.unlink()
    file.mkdir()


@pytest.mark.parametrize("suffix", ["-cache", "-atime"])
@pytest.mark.parametrize("damage", [cut, flip_a_bit, make_a_folder, Path.unlink])
def test_a_damaged_entry_is_written_anew(tmp_path, damage, suffix):
    run(tmp_path)
    for file in tmp_path.rglob(f"*{suffix}"):
        damage(file)
    if suffix == "-cache" or damage in (make_a_folder, Path.unlink):
        assert run(tmp_path) == "8.0 0"
    assert run(tmp_path) == "8.0 1"


def test_whole_entries_and_other_files_stay(tmp_path):
    (tmp_path / "a-cache").write_bytes(zlib.compress(b"program"))
    (tmp_path / "a-atime").write_bytes(bytes(8))
    (tmp_path / "notes").write_text("")
    remove_damaged(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"a-cache", "a-atime", "notes", ".lockfile"}


def test_a_cache_in_use_is_left_alone(tmp_path):
    (tmp_path / "a-cache").write_bytes(b"being written")
    with filelock.FileLock(tmp_path / ".lockfile"):
        assert forked.run(["-c", TIDY, str(tmp_path)]).returncode == 0
        assert (tmp_path / "a-cache").is_file()


TIDY = "import sys; from pathlib import Path; from pods_jax import cache; cache.LOCK_S = 0.1; "
TIDY += "cache.remove_damaged(Path(sys.argv[1]))"


# ---------------------------------------------------------------- other users


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o777])
def test_a_folder_that_others_may_write_to_is_not_used(tmp_path, mode):
    run(tmp_path)
    [folder] = (tmp_path / "programs").iterdir()
    folder.chmod(mode)
    assert run(tmp_path) == "8.0 0 note"


def test_a_folder_of_another_user_is_not_used(tmp_path, monkeypatch):
    make_private(tmp_path / "own")
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError, match="others may write to"):
        make_private(tmp_path / "own")


def test_folders_that_are_made_are_private_and_others_stay(tmp_path):
    tmp_path.chmod(0o755)
    before = os.umask(0)
    try:
        make_private(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    assert [(tmp_path / p).stat().st_mode & 0o777 for p in (".", "a", "a/b", "a/b/c")] == [0o755, 0o700, 0o700, 0o700]


def test_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("PODS_JAX_CACHE", str(tmp_path))
    assert cache_folder("warm_starts") == tmp_path / "warm_starts"
    assert programs_folder().parent == tmp_path / "programs"
    monkeypatch.delenv("PODS_JAX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("warm_starts") == tmp_path / "pods_jax" / "warm_starts"
