"""Folders that an export is refused, so that no run and no other model is overwritten."""

import pytest

from pods_jax.errors import UserError
from pods_jax.training.export import MARK, mark, refuse_folder


@pytest.fixture
def workdir(tmp_path):
    return made_workdir(tmp_path / "run")


def made_workdir(folder):
    folder.mkdir()
    for name in (".lock", "config.json"):
        (folder / name).write_text("{}")
    return folder


def test_absent_and_empty_folders_are_taken(workdir, tmp_path):
    refuse_folder(tmp_path / "a" / "b", workdir)
    (tmp_path / "empty").mkdir()
    refuse_folder(tmp_path / "empty", workdir)


@pytest.mark.parametrize("below", ["", "export", "a/b"])
def test_a_workdir_is_refused_and_all_that_lies_in_it(workdir, tmp_path, below):
    other = made_workdir(tmp_path / "other")
    for folder in (workdir, other):
        with pytest.raises(UserError, match=f"is, or lies in, the workdir {folder}"):
            refuse_folder(folder / below, workdir)


def test_a_workdir_is_known_by_another_name(workdir, tmp_path):
    (tmp_path / "link").symlink_to(workdir)
    with pytest.raises(UserError, match="is, or lies in, the workdir"):
        refuse_folder(tmp_path / "link" / "export", workdir)


def test_files_of_another_origin_are_refused(workdir, tmp_path):
    out = tmp_path / "model"
    out.mkdir()
    (out / "tokenizer.json").write_text("{}")
    with pytest.raises(UserError, match="holds files that are no export of workdir"):
        refuse_folder(out, workdir)
    mark(out, tmp_path / "other")
    with pytest.raises(UserError, match="holds files that are no export of workdir"):
        refuse_folder(out, workdir)


def test_an_earlier_export_of_the_workdir_is_taken(workdir, tmp_path, monkeypatch):
    out = tmp_path / "a" / "out"
    mark(out, workdir)
    monkeypatch.chdir(tmp_path)
    refuse_folder(out, workdir.relative_to(tmp_path))


@pytest.mark.parametrize("text", ["[]", "{}", "\x00\x00"])
def test_a_mark_that_says_something_else_is_none(workdir, tmp_path, text):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / MARK).write_text(text)
    with pytest.raises(UserError, match="no export of workdir"):
        refuse_folder(tmp_path / "out", workdir)


@pytest.mark.parametrize("length", [0, 1, 20, None])
def test_a_mark_that_a_kill_has_torn_refuses_nothing(workdir, tmp_path, length):
    out = tmp_path / "out"
    mark(out, workdir)
    (out / MARK).write_text((out / MARK).read_text()[:length])
    (out / "config.json").write_text("{}")
    refuse_folder(out, workdir)
    mark(out, workdir)
    assert len((out / MARK).read_text()) > 20


def test_what_killed_exports_leave_refuses_nothing(workdir, tmp_path):
    out = tmp_path / "out"
    (out / ".partial-x1").mkdir(parents=True)
    (out / ".partial-x1" / "model.safetensors").write_text("")
    (out / f"{MARK}.partial").write_text('{"work')
    refuse_folder(out, workdir)
    (out / "model.safetensors").write_text("")
    with pytest.raises(UserError, match="no export of workdir"):
        refuse_folder(out, workdir)


def test_a_file_is_refused(workdir, tmp_path):
    (tmp_path / "README.md").write_text("text")
    with pytest.raises(UserError, match=r"README\.md is not a folder"):
        refuse_folder(tmp_path / "README.md", workdir)
