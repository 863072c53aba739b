"""The documents are followed to the letter: what they say to write trains, and what they name exists."""

import ast
import contextlib
import importlib
import inspect
import io
import json
import re
import runpy
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import forked
import jax
import pytest
import tokenizers
import transformers

import pods_jax
from pods_jax.allocation import ALLOCATORS
from pods_jax.analysis.runs import read_run
from pods_jax.config import schema
from pods_jax.config.load import load_config
from pods_jax.errors import UserError
from pods_jax.models import Decoder, ModelConfig, init_params, save_pretrained
from pods_jax.objective import ADVANTAGES, LEVELS, LOSSES, SURROGATES
from pods_jax.rewards import VERIFIERS
from pods_jax.selection import RULES

ROOT = Path(__file__).parents[1]
DOCS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
PACKAGES = sorted(p.parent.name for p in (ROOT / "pods_jax").glob("*/__init__.py"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

each_document = pytest.mark.parametrize("doc", DOCS, ids=lambda doc: doc.name)


# ---------------------------------------------------------------- what the guides say to write


RUN = """
import json, sys
from pods_jax.config.schema import from_mapping
from pods_jax.training import Reporter, train
from pods_jax.config.validate import violations

config, problems = from_mapping(json.loads(sys.argv[1]))
assert not problems + violations(config), problems + violations(config)
train(config, sys.argv[2], Reporter())
"""


def test_the_guide_to_extending_works(tiny, tmp_path):
    shutil.copytree(ROOT / "pods_jax", tmp_path / "pods_jax")
    guide = "".join((ROOT / "docs" / name).read_text() for name in ("extending.md", "allocation.md"))
    files = re.findall(r"```python\n# (pods_jax/\S+)\n(.*?)```", guide, re.DOTALL)
    assert len(files) == 6
    for name, code in files:
        (tmp_path / name).write_text(code)
    for key, value in re.findall(r"`--config\.(\S+)=(\w+)", guide):
        section, name = key.split(".")
        tiny[section][name] = value
    tiny.data.options = {}
    tiny.training.num_steps = 2
    command = [sys.executable, "-c", RUN, json.dumps(tiny.to_dict()), str(tmp_path / "run")]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    record = read_run(tmp_path / "run")
    assert record.config["selection"]["rule"] == "extremes"
    assert record.config["data"]["name"] == "copying"
    assert record.config["allocation"]["name"] == "nearest_half"
    assert record.config["objective"]["loss_type"] == "sqrt_length"
    assert record.config["environment"]["name"] == "second_try"
    assert all(m["turns/mean"] >= 1 for m in record.metrics)
    assert len(record.metrics) == 2


def save_tiny_model(folder: Path) -> None:
    """A random Llama that knows 32 characters."""
    vocab = {c: i for i, c in enumerate("abcdefghijklmnopqrstuvwxyz012 ?<")}
    backend = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocab, unk_token="?"))
    backend.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    config = ModelConfig(
        vocab_size=len(vocab), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=1, head_dim=8,
    )  # fmt: skip
    model = Decoder(config)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=backend, unk_token="?", eos_token="<")
    save_pretrained(folder, model, init_params(model, jax.random.key(0)))
    tokenizer.save_pretrained(folder)


def test_the_library_example_of_the_readme_runs(tmp_path):
    """As a script, with a tiny model in place of its language model."""
    save_tiny_model(tmp_path / "model")
    section = (ROOT / "README.md").read_text().partition("## As a library")[2]
    code = re.search(r"```python\n(.*?)```", section, re.DOTALL)[1]
    assert code.count('"smollm2-135m"') == 1
    (tmp_path / "example.py").write_text(code.replace('"smollm2-135m"', repr(str(tmp_path / "model"))))
    done = forked.run([tmp_path / "example.py"])
    assert done.returncode == 0, done.stderr
    assert re.match(r"\d+% right; kept \[.*\], advantages \[.*\]", done.stdout)


def test_the_example_of_the_api_page_runs(capsys):
    code = re.search(r"```python\n(.*?)```", (ROOT / "docs" / "api.md").read_text(), re.DOTALL)[1]
    exec(compile(code, "api.md", "exec"), {})
    rewards, _, kept = capsys.readouterr().out.partition(" kept ")
    assert rewards == "[1. 0. 0. 1.]"
    assert kept.startswith("[0.0, 1.0]") or "0.0" in kept.partition("]")[0]


# ---------------------------------------------------------------- the config's keys


def sections() -> list[type]:
    """The dataclasses of a config."""
    return [c for c in vars(schema).values() if inspect.isclass(c) and hasattr(c, "__dataclass_fields__")]


def fields_without_meaning(code: str) -> list[str]:
    """The annotated names in the body of a class that no string of several words follows."""
    body = ast.parse(code).body[0].body
    found = []
    for field, after in zip(body, [*body[1:], None], strict=True):
        text = getattr(getattr(after, "value", None), "value", None)
        if isinstance(field, ast.AnnAssign) and not (isinstance(text, str) and len(text.split()) > 1):
            found.append(field.target.id)
    return found


def test_every_config_key_has_its_meaning_beside_it():
    assert {type(section) for section in vars(schema.Config()).values()} - {int} < set(sections())
    for section in sections():
        assert section.__doc__, section
        names = set(fields_without_meaning(inspect.getsource(section)))
        assert not names - {f for f, t in inspect.get_annotations(section).items() if t in sections()}, section


def test_keys_without_meaning_are_found():
    code = (
        'class A:\n    """A."""\n    a: int = 0\n    """Number of a."""\n    b: int = 0\n    c: int = 0\n    """"""\n'
    )
    assert fields_without_meaning(code) == ["b", "c"]
    assert fields_without_meaning(code + "    d: int = 0\n") == ["b", "c", "d"]


def keys(doc: Path) -> list[str]:
    """What stands in backticks and looks like a config key, "section.key"; other libraries' keys are left out."""
    names = "|".join(vars(schema.Config()))
    ours, _, elsewhere = doc.read_text().partition("elsewhere\n")
    text = ours + re.sub(r"(?m)^\|([^|]*)\|.*", r"\1", elsewhere)
    return re.findall(rf"`(?:--config\.)?((?:{names})\.[a-z_]+)(?=[` =])", text)


@each_document
def test_config_keys_exist(doc):
    config = schema.to_dict(schema.Config())
    for key in keys(doc):
        section, name = key.split(".")
        assert name in config[section], key


# ---------------------------------------------------------------- names


def places(doc: Path) -> list[str]:
    """The files and folders that a document names, from the root."""
    text = doc.read_text()
    packages = "|".join(PACKAGES)
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    rooted = re.findall(
        r"[`( ]((?:\.ci|configs|docs|experiments|notebooks|pods_jax|tests)/[\w/.]*\w/?)(?=[`:) \n,])", text
    )
    inside = re.findall(rf"`((?:{packages})/(?:\w+(?:\.py|/))?)`", text)
    found = [*rooted, *(f"pods_jax/{path}" for path in inside)]
    return [*found, *(str((doc.parent / link).resolve().relative_to(ROOT)) for link in links)]


@each_document
def test_paths_exist(doc):
    said = re.findall(r"```python\n# (pods_jax/\S+)\n", doc.read_text())
    missing = [path for path in places(doc) if not (ROOT / path).exists() and path not in said]
    assert not missing


def lookup(name: str):
    """The module, or what a module has, of a dotted name."""
    module, _, attribute = name.rpartition(".")
    with contextlib.suppress(ModuleNotFoundError):
        return importlib.import_module(name)
    return getattr(lookup(module), attribute)


@each_document
def test_dotted_names_exist(doc):
    for name in re.findall(r"(?<![\w/])pods_jax(?:\.[A-Za-z_]+)+", doc.read_text()):
        lookup(name)


@each_document
def test_imports_work(doc):
    said = dict(re.findall(r"```python\n# (pods_jax/\S+)\n(.*?)```", doc.read_text(), re.DOTALL))
    for block in re.findall(r"```python\n(.*?)```", doc.read_text(), re.DOTALL):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("pods_jax"):
                assert said or all(lookup(f"{node.module}.{alias.name}") is not None for alias in node.names)


def test_the_changelog_says_where_modules_are():
    rows = re.findall(r"^\| `pods_jax.* \| (.*) \|$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert len(rows) > 30
    for row in rows:
        for name in re.findall(r"`(pods_jax(?:\.\w+)+)`", row):
            lookup(name)
        for path in re.findall(r"`(experiments/\S+)`", row):
            assert (ROOT / path).exists()


@pytest.mark.parametrize(
    ("doc", "registries"),
    [
        ("algorithms.md", (RULES, ADVANTAGES, SURROGATES, LEVELS, LOSSES)),
        ("allocation.md", (ALLOCATORS,)),
        ("rewards.md", (VERIFIERS,)),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_every_part_is_in_the_page_of_its_family(doc, registries):
    text = (ROOT / "docs" / doc).read_text()
    own = [name for parts in registries for name, part in parts.items() if module_of(part).startswith("pods_jax.")]
    assert own
    assert not [name for name in own if f"`{name}`" not in text]


def module_of(part: object) -> str:
    """The module that a part was written in: other tests register theirs."""
    return getattr(part, "verify", part).__module__


# ---------------------------------------------------------------- commands


def commands(doc: Path) -> list[list[str]]:
    """The command lines of the bash blocks and in backticks, as words; what follows && is one of its own."""
    text = doc.read_text().replace("\\\n", " ")
    blocks = [
        line.partition(" # ")[0] for b in re.findall(r"```bash\n(.*?)```", text, re.DOTALL) for line in b.splitlines()
    ]
    inline = [" ".join(span.split()) for span in re.findall(r"(?<!`)`([^`]+)`(?!`)", text)]
    lines = [part for line in blocks + inline for part in line.split("&&")]
    return [shlex.split(line) for line in lines if re.match(r"\s*(python3?|pytest|pip|pods-\w+|\.ci/run)\b", line)]


@pytest.fixture(scope="module")
def help_of():
    """(script, its subcommand or "") -> what --help prints, each asked once."""
    known: dict[tuple[str, ...], str] = {}

    def ask(*words: str) -> str:
        if words not in known:
            known[words] = printed_help(*words)
        return known[words]

    return ask


def printed_help(script: str, *subcommand: str) -> str:
    out = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stdout(out):
        patch.setenv("PODS_JAX_PROGRAMS", "0")
        patch.setattr(sys, "argv", [script, *subcommand, "--help"])
        with pytest.raises(SystemExit, match=r"^0$"):
            runpy.run_path(str(ROOT / script), run_name="__main__")
    return out.getvalue()


def python_problem(words: list[str], help_of) -> str | None:
    """What is wrong with a command line `python experiments/NAME.py ...`."""
    script, *rest = words
    if not (ROOT / script).is_file():
        return f"no {script}"
    subcommand = rest[:1] if script.endswith("benchmark.py") and rest and rest[0].islower() else []
    flags = {word.partition("=")[0] for word in rest if word.startswith("--") and not word.startswith("--config.")}
    shown = set(re.findall(r"(?<![\w-])--[\w-]+", help_of(script, *subcommand)))
    return f"{script} has no {flags - shown}" if flags - shown else None


@each_document
def test_commands_exist(doc, help_of):
    for words in commands(doc):
        tool, rest = words[0], words[1:]
        if tool.startswith("python") and rest and rest[0].startswith("experiments/"):
            assert python_problem(rest, help_of) is None, words
        elif tool == "pip":
            for extra in re.findall(r"\[([\w,]+)\]", " ".join(rest)):
                assert set(extra.split(",")) <= PROJECT["optional-dependencies"].keys(), words
        elif tool == "pytest":
            assert all((ROOT / word).exists() for word in rest if "/" in word), words
        elif tool.startswith("pods-"):
            assert tool in PROJECT["scripts"], words


@each_document
def test_configs_load(doc, tmp_path, monkeypatch):
    """Every `configs/NAME.py:argument` that is named, and with each command line its overrides."""
    for name, code in re.findall(r"```python\n# (\w+\.py)\n(.*?)```", doc.read_text(), re.DOTALL):
        (tmp_path / name).write_text(code)
    monkeypatch.syspath_prepend(tmp_path)
    named = re.findall(r"(configs/[\w/]+\.py(?::[\w.,=-]*\w)?)", doc.read_text())
    for words in commands(doc):
        given = [word.removeprefix("--config.") for word in words if word.startswith("--config.")]
        spec = words[words.index("--config") + 1] if "--config" in words else ""
        if spec.startswith("configs/") and not any(map(placeholder, [spec, *given])):
            load_config(str(ROOT / spec), given)
    for spec in named:
        if not placeholder(spec):
            load_config(str(ROOT / spec))


def placeholder(word: str) -> bool:
    """Whether a word has a part for the reader to fill in."""
    return bool(re.search(r"\.\.\.|\b[A-Z]{2,}\b", word.removeprefix("configs/")))


def test_console_scripts_are_the_scripts():
    for command, target in PROJECT["scripts"].items():
        module, _, name = target.partition(":")
        assert callable(getattr(importlib.import_module(module), name))
        assert (ROOT / "experiments" / f"{command.removeprefix('pods-')}.py").is_file()


def test_what_does_not_exist_is_found(help_of, tmp_path):
    doc = tmp_path / "doc.md"
    doc.write_text(
        "`python experiments/train.py --nothing` and\n```bash\npip install x && python experiments/no.py  # run\n```"
    )
    found = commands(doc)
    assert found == [
        ["pip", "install", "x"],
        ["python", "experiments/no.py"],
        ["python", "experiments/train.py", "--nothing"],
    ]
    assert python_problem(found[1][1:], help_of) == "no experiments/no.py"
    assert python_problem(found[2][1:], help_of) == "experiments/train.py has no {'--nothing'}"
    with pytest.raises(AttributeError):
        lookup("pods_jax.selection.nothing")
    with pytest.raises(UserError):
        load_config(str(ROOT / "configs/demo.py:nothing"))


# ---------------------------------------------------------------- the site


def test_every_page_is_in_the_sites_navigation():
    named = re.findall(r": (\w+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
    assert sorted(named) == sorted(page.name for page in (ROOT / "docs").glob("*.md"))


def test_the_api_page_names_what_exists():
    names = re.findall(r"^::: (\S+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE)
    assert len(names) > 20
    for name in names:
        assert inspect.getdoc(lookup(name)), name


def test_the_site_builds(tmp_path):
    pytest.importorskip("mkdocs", reason="needs the extra docs")
    pytest.importorskip("mkdocstrings", reason="needs the extra docs")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Indices of the rollouts each group keeps" in (tmp_path / "site" / "api" / "index.html").read_text()


# ---------------------------------------------------------------- the package and its papers


def test_one_version_everywhere():
    cff = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.*)$", cff, re.MULTILINE)[1] == pods_jax.__version__
    assert f"\n## {pods_jax.__version__}\n" in (ROOT / "CHANGELOG.md").read_text()


def test_the_readme_cites_the_papers_of_the_citation_file():
    cff = (ROOT / "CITATION.cff").read_text()
    readme = (ROOT / "README.md").read_text()
    cited = [title.replace("{", "").replace("}", "") for title in re.findall(r"title\s+= \{(.*)\},", readme)]
    assert cited == re.findall(r'^    title: "(.*)"$', cff, re.MULTILINE)
    assert len(cited) == 2
    for family in re.findall(r"family-names: (\w+)", cff):
        assert f"{family}, " in readme
