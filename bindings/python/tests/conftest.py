"""What several tests need."""

import os
import pathlib
import shutil
import subprocess

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[3]


@pytest.fixture(scope="session")
def root():
    """The repository."""
    return ROOT


@pytest.fixture(scope="session")
def program():
    """Runs the program, and returns what it printed."""
    path = os.environ.get("DWELL") or shutil.which("dwell")
    if not path:
        pytest.skip("DWELL names no program to compare with")

    def run(*words, cwd=None):
        done = subprocess.run([path, *map(str, words)], cwd=cwd, capture_output=True, check=True)
        return done.stdout

    return run
