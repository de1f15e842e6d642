"""Runs a notebook's cells in their order: `python notebook.py FILE`. Nothing of Jupyter is needed for that."""

import json
import sys


def main(path):
    with open(path, encoding="utf-8") as file:
        notebook = json.load(file)
    names = {"__name__": "__main__"}
    for number, cell in enumerate(notebook["cells"]):
        if cell["cell_type"] == "code":
            code = "".join(cell["source"])
            exec(compile(code, f"{path}, cell {number}", "exec"), names)


if __name__ == "__main__":
    main(sys.argv[1])
