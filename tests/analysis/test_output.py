import pytest

from pods_jax.analysis.output import refuse_unwritable
from pods_jax.errors import UserError


def test_figures_need_a_folder(tmp_path):
    file = tmp_path / "README.md"
    file.write_text("text")
    refuse_unwritable(tmp_path)
    refuse_unwritable(tmp_path / "new" / "figs")
    for out in (file, file / "figs"):
        with pytest.raises(UserError, match=r"README\.md is not a folder"):
            refuse_unwritable(out)
    assert not (tmp_path / "new").exists()
