"""The examples of the documentation are run."""

import doctest
import importlib
import inspect
import pkgutil
import re

import dwell
import pytest

PAGES = ["docs/python.md"]


def examples(root, page):
    """The examples of a page: what follows `<!-- needs: X -->` is left out where X can't be imported."""
    text = (root / page).read_text()
    for found in re.finditer(r"(?:<!-- needs: (\w+) -->\n)?```python\n(.*?)```", text, re.S):
        yield found.group(1), text[: found.start()].count("\n") + 1, found.group(2)


@pytest.mark.parametrize("page", PAGES)
def test_examples_run(root, page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").symlink_to(root / "data")
    names = {}
    count = 0
    for needs, line, code in examples(root, page):
        if needs:
            try:
                importlib.import_module(needs)
            except ImportError:
                continue
        exec(compile("\n" * line + code, page, "exec"), names)
        count += 1
    assert count > 3


@pytest.mark.parametrize("name", [it.name for it in pkgutil.iter_modules(dwell.__path__)])
def test_docstrings_are_true(name, root, tmp_path, monkeypatch):
    if name.startswith("_"):
        pytest.skip("compiled, or private")
    monkeypatch.chdir(root)
    module = importlib.import_module(f"dwell.{name}")
    failed, tried = doctest.testmod(module, optionflags=doctest.ELLIPSIS)
    assert failed == 0
    # Some versions of Python count what is skipped as tried.
    lines = inspect.getsource(module).splitlines()
    assert tried >= sum(">>> " in line and "+SKIP" not in line for line in lines)
    assert tried > 0 or name not in {"codec", "sim", "stream", "trace"}
