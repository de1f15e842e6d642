"""The notebooks are run, in their quick variants, each in a process of its own."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

NOTEBOOKS = sorted((pathlib.Path(__file__).parents[1] / "notebooks").glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebooks_run(path, root, tmp_path):
    pytest.importorskip("matplotlib")
    (tmp_path / "data").symlink_to(root / "data")
    runner = pathlib.Path(__file__).with_name("notebook.py")
    environment = {**os.environ, "DWELL_QUICK": "1", "MPLBACKEND": "Agg"}
    done = subprocess.run(
        [sys.executable, runner, path], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


def test_notebooks_have_no_outputs():
    assert len(NOTEBOOKS) == 4
    for path in NOTEBOOKS:
        notebook = json.loads(path.read_text())
        assert all(not cell.get("outputs") for cell in notebook["cells"]), path
