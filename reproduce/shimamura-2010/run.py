"""Reproduces the figures and numbers of Shimamura et al. 2010; README.md says how."""

import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from artefact import reproduce  # noqa: E402 - it lies beside the folder

if __name__ == "__main__":
    sys.exit(reproduce(__doc__, HERE, "shimamura/"))
