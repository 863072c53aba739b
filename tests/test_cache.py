import os
import subprocess
import sys
from pathlib import Path

from pods_jax.cache import cache_folder, programs_folder

PROGRAM = """
from pods_jax.cache import keep_programs
keep_programs()
import jax
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0)
hits = []
jax.monitoring.register_event_listener(lambda name, **_: hits.append(name == "/jax/compilation_cache/cache_hits"))
print(float(jax.jit(lambda x: x * 2.0)(4.0)), sum(hits))
"""


def run(folder: Path, **settings: str) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"}
    environment |= {"PODS_JAX_CACHE": str(folder), **settings}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert "Traceback" not in done.stderr
    return done.stdout.strip() + (" note" if "note:" in done.stderr else "")


def test_the_next_process_loads_what_one_compiled(tmp_path):
    assert run(tmp_path) == "8.0 0"
    assert run(tmp_path) == "8.0 1"
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


def test_folders(monkeypatch, tmp_path):
    monkeypatch.setenv("PODS_JAX_CACHE", str(tmp_path))
    assert cache_folder("warm_starts") == tmp_path / "warm_starts"
    assert programs_folder().parent == tmp_path / "programs"
    monkeypatch.delenv("PODS_JAX_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder("warm_starts") == tmp_path / "pods_jax" / "warm_starts"
