"""The package as a whole: its types, its documentation, and what it is built from."""

import ast
import importlib
import inspect
import json
import pathlib
import pkgutil
import re

import dwell
from dwell import _dwell

PACKAGE = pathlib.Path(dwell.__file__).parent


def defined(tree):
    """The public names of a stub, those of classes with their members."""
    names = {}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names[node.name] = {it.name for it in node.body if isinstance(it, ast.FunctionDef)}
        elif isinstance(node, ast.FunctionDef):
            names[node.name] = None
        elif isinstance(node, ast.AnnAssign):
            names[node.target.id] = None
    return names


def test_the_stubs_have_what_the_module_has():
    stubs = defined(ast.parse((PACKAGE / "_dwell.pyi").read_text()))
    public = {name for name in dir(_dwell) if not name.startswith("_")} | {"__version__"}
    assert set(stubs) == public
    for name, members in stubs.items():
        of_module = getattr(_dwell, name)
        if inspect.isclass(of_module) and not issubclass(of_module, Exception):
            own = {it for it in vars(of_module) if not it.startswith("_")}
            assert own == {it for it in members if not it.startswith("_")}, name


def test_everything_public_is_documented():
    for info in pkgutil.iter_modules([str(PACKAGE)]):
        if info.name.startswith("_"):
            continue
        module = importlib.import_module(f"dwell.{info.name}")
        assert module.__doc__, info.name
        for name in module.__all__:
            thing = getattr(module, name)
            assert inspect.getdoc(thing), f"{info.name}.{name}"
            if inspect.isclass(thing) and thing.__module__.startswith("dwell"):
                for member, value in vars(thing).items():
                    if not member.startswith("_") and callable(value):
                        assert inspect.getdoc(value), f"{info.name}.{name}.{member}"
    assert (PACKAGE / "py.typed").exists()


def test_results_follow_from_the_same_libraries_as_the_programs(root):
    def versions(lock):
        text = lock.read_text()
        names = ("libm", "rand_core", "rand_xoshiro", "siphasher")
        return {
            name: re.findall(rf'^name = "{name}"\nversion = "(.*)"$', text, re.M) for name in names
        }

    own, program = versions(root / "bindings/python/Cargo.lock"), versions(root / "Cargo.lock")
    for name, found in own.items():
        assert found and set(found) <= set(program[name]), name


def test_whoever_cites_it_cites_this_version(root):
    version = re.search(r'^version = "(.*)"$', (root / "Cargo.toml").read_text(), re.M).group(1)
    citation = (root / "CITATION.cff").read_text()
    assert f"\nversion: {version}\n" in citation
    assert json.loads((root / ".zenodo.json").read_text())["version"] == version
    assert dwell.__version__ == version
