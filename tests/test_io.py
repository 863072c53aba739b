import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from pods_jax.errors import UserError
from pods_jax.io import make_folder, refuse_unwritable, remove_partial, write_atomic, write_shared, writing


def test_a_folder_is_made_with_those_it_lies_in(tmp_path):
    for _ in range(2):
        make_folder(tmp_path / "a" / "b", "workdir")
    assert (tmp_path / "a" / "b").is_dir()


@pytest.mark.parametrize("below", ["", "a/b"])
def test_a_file_in_the_place_of_a_folder_is_named(tmp_path, below):
    file = tmp_path / "README.md"
    file.write_text("text")
    with pytest.raises(UserError, match=r"^--out .* cannot be written: .*README\.md is not a folder"):
        refuse_unwritable(file / below, "--out")
    with pytest.raises(UserError, match=r"^--out .*README\.md.* cannot be written: "):
        make_folder(file / below, "--out")
    assert file.read_text() == "text"


def test_folders_and_what_is_not_there_are_no_files(tmp_path):
    refuse_unwritable(tmp_path, "--out")
    refuse_unwritable(tmp_path / "a" / "b", "--out")
    refuse_unwritable(Path("a"), "--out")


def test_what_the_system_refuses_is_told_in_its_words(tmp_path):
    with pytest.raises(UserError, match=f"^workdir {tmp_path} cannot be written: Is a directory$"), writing(tmp_path):
        tmp_path.write_text("text")


# ---------------------------------------------------------------- whole or not at all


def dies(*_):
    raise KeyboardInterrupt


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_write_that_is_interrupted_leaves_the_file_as_it_was(tmp_path, monkeypatch, call):
    file = tmp_path / "summary.json"
    write_atomic(file, "old")
    monkeypatch.setattr(os, call, dies)
    with pytest.raises(KeyboardInterrupt):
        write_atomic(file, "new")
    assert file.read_text() == "old"


def test_a_file_is_on_the_disk_before_it_has_its_name(tmp_path, monkeypatch):
    calls = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *args, name=name, real=real: (calls.append(name), real(*args)))
    for write, content in ((write_atomic, "text"), (write_shared, b"bytes")):
        write(tmp_path / "file", content)
        assert calls == ["fsync", "replace"]
        calls.clear()
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


KILLED = """
import os, signal, sys
from pathlib import Path
from pods_jax import io
os.replace = lambda *_: (print("writing", flush=True), sys.stdin.read())
io.write_shared(Path(sys.argv[1]), b"content")
"""


def test_what_a_killed_process_was_writing_is_removed_and_not_before(tmp_path):
    writer = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(tmp_path / "file")], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert writer.stdout.readline() == b"writing\n"
    remove_partial(tmp_path)
    assert len(list(tmp_path.glob("*.partial"))) == 1
    writer.send_signal(signal.SIGKILL)
    writer.communicate()
    remove_partial(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        write_shared(tmp_path / "file", b"content")
    assert not list(tmp_path.iterdir())
