from pathlib import Path

import pytest

from pods_jax.errors import UserError
from pods_jax.io import make_folder, refuse_unwritable, writing


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
