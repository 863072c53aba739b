"""Config files as a user writes them: what they may import, and what is wrong in one line with file and line."""

import importlib.metadata
import sys
import tomllib
from pathlib import Path
from types import SimpleNamespace

import pytest

from pods_jax import plugins
from pods_jax.config import default_config, freeze
from pods_jax.config.load import load_config, load_module, origin_of
from pods_jax.config.schema import Config
from pods_jax.errors import UserError
from pods_jax.selection import RULES

ROOT = Path(__file__).parents[2]
HEAD = "from pods_jax.config import default_config\n\n\ndef get_config():\n    c = default_config()\n"


@pytest.fixture(autouse=True)
def _same_search_path(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (HEAD, r":4: get_config\(\) must return the config, and returns NoneType"),
        (HEAD + "    return 3\n", ":4: get_config.* and returns int"),
        ("def get_config(:\n", ":1: SyntaxError: invalid syntax"),
        ("def get_config():\nreturn 1\n", ":2: IndentationError"),
        ("\x00", ":1: SyntaxError|: ValueError"),
        (HEAD + "    c.selecton.rule = 'x'\n    return c\n", r":6: unknown key 'selecton' \(did you mean 'selection'"),
        (HEAD + "    c.selecton = {}\n    return c\n", r":6: unknown key 'selecton' \(did you mean 'selection'"),
        (HEAD + "\n    c.selection.rul = 'x'\n    return c\n", r":7: unknown key 'rul' \(did you mean 'rule'"),
        (HEAD + "    c.selection = 3\n    return c\n", "selection is a section of keys, got 3"),
        ("import nothing_there\n", ":1: ModuleNotFoundError: No module named 'nothing_there'"),
        ("import broken_neighbour\n", r":1: KeyError: 'a' \(.*broken_neighbour\.py:3\)"),
        (HEAD + "    return c / 0\n", ":6: TypeError"),
        ("get_config = 3\n", r"has no get_config\(\)"),
    ],
)
def test_errors_in_a_file_are_one_line_with_its_place(tmp_path, text, message):
    (tmp_path / "broken_neighbour.py").write_text("\n\nx = {}['a']\n")
    file = tmp_path / "wrong.py"
    file.write_text(text)
    with pytest.raises(UserError, match=message) as raised:
        load_config(str(file))
    assert "\n" not in str(raised.value)
    assert "wrong.py" in str(raised.value) or str(raised.value).startswith("config: ")


def test_files_that_are_not_python_are_refused(tmp_path):
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    with pytest.raises(UserError, match=r"config\.yaml is not Python: its name must end in \.py"):
        load_config(str(tmp_path / "config.yaml"))


def test_neighbours_and_the_current_folder_can_be_imported(tmp_path, monkeypatch):
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "neighbour_of_mine.py").write_text("SEED = 3\n")
    (tmp_path / "module_of_mine.py").write_text("SEED = 4\n")
    file = tmp_path / "configs" / "own.py"
    file.write_text(
        "import module_of_mine, neighbour_of_mine\n" + HEAD
        + "    c.seed = module_of_mine.SEED + neighbour_of_mine.SEED\n    return c\n"
    )  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert load_config("configs/own.py").seed == 7


def test_a_file_that_registers_a_part_can_be_loaded_again(tmp_path):
    """And its module can be imported by name, as reward workers do."""
    file = tmp_path / "registers_a_part.py"
    file.write_text(
        "from pods_jax.selection.rules import RULES\n"
        "RULES.register('of_this_file')(lambda rewards, num_kept, key, valid: ...)\n"
        + HEAD + "    c.selection.rule = 'of_this_file'\n    return c\n"
    )  # fmt: skip
    try:
        assert load_config(str(file)) == load_config(str(file))
        assert sys.modules["registers_a_part"] is load_module(file)
        file.write_text(file.read_text() + "\n")
        with pytest.raises(UserError, match=r"registers_a_part\.py:2: ValueError: .* is registered twice"):
            load_config(str(file))
    finally:
        RULES._parts.pop("of_this_file")
        sys.modules.pop("registers_a_part", None)


# ---------------------------------------------------------------- freeze


def test_the_installed_packages_configs_are_found_from_every_folder(tmp_path, monkeypatch):
    """A wheel puts them beside other data; a file of that path in the current folder goes first."""
    brought = tmp_path / "prefix" / "share" / "pods_jax" / "configs"
    brought.mkdir(parents=True)
    (brought / "house.py").write_text(HEAD + "    c.seed = 1\n    return c\n")
    recorded = [SimpleNamespace(parts=p.parts, locate=lambda p=p: p) for p in brought.glob("*.py")]
    monkeypatch.setattr(importlib.metadata, "files", lambda name: recorded)
    monkeypatch.chdir(tmp_path)
    assert load_config("configs/house.py").seed == 1
    assert origin_of("configs/house.py")["config"] == f"{brought / 'house.py'}"
    (tmp_path / "configs").mkdir()
    (tmp_path / "configs" / "house.py").write_text(HEAD + "    c.seed = 2\n    return c\n")
    assert load_config("configs/house.py").seed == 2
    with pytest.raises(UserError, match=r"no config file configs/hose\.py \(did you mean configs/house\.py"):
        load_config("configs/hose.py")


def test_all_configs_are_in_the_wheel():
    """Every folder of configs is named in the package's data files."""
    data = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["data-files"]
    folders = {file.parent.relative_to(ROOT) for file in (ROOT / "configs").rglob("*.py")}
    assert data == {f"share/pods_jax/{folder}": [f"{folder}/*.py"] for folder in folders}


def test_freeze_checks_what_it_freezes():
    assert freeze(default_config()) == Config()
    config = default_config()
    config.seed = 5
    config.data.options.anything = 1
    assert freeze(config, ["seed=6"]).seed == 6
    config.selection.num_kept = 1000
    with pytest.raises(UserError, match=r"num_kept .m = 1000. exceeds"):
        freeze(config)
    with pytest.raises(UserError, match="unknown key selecton"):
        freeze({"selecton": {}})
    with pytest.raises(UserError, match="made of a ConfigDict or a mapping, got NoneType"):
        freeze(None)


def test_default_config_takes_no_key_that_no_section_has():
    with pytest.raises(AttributeError, match="rul"):
        default_config().selection.rul = "x"


# ---------------------------------------------------------------- plugins


def install(folder, module: str, code: str) -> None:
    """A package with an entry point, as pip would leave it."""
    (folder / f"{module}.py").write_text(code)
    info = folder / f"{module}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[pods_jax.plugins]\nparts = {module}\n")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    plugins.load_plugins.cache_clear()
    yield tmp_path
    plugins.load_plugins.cache_clear()
    RULES._parts.pop("of_a_plugin", None)


def test_plugins_register_their_parts(installed):
    rule = "lambda rewards, num_kept, key, valid: 0"
    code = f"from pods_jax.selection.rules import RULES\nRULES.register('of_a_plugin')({rule})\n"
    install(installed, "a_plugin", code)
    assert freeze(default_config(), ["selection.rule=of_a_plugin"]).selection.rule == "of_a_plugin"


def test_a_plugin_that_cannot_be_imported_is_named(installed):
    install(installed, "a_broken_plugin", "import nothing_there\n")
    with pytest.raises(
        UserError, match=r"plugin 'parts' of a_broken_plugin cannot be imported .*'nothing_there'"
    ) as raised:
        freeze(default_config())
    assert "\n" not in str(raised.value)
