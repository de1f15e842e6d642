"""What a job of Slurm runs: ``python -m dwell._slurm DIRECTORY NUMBER``.

A job that is run again goes on with the tasks that have no result yet.
"""

import os
import pickle
import sys

from dwell.engines import guarded


def call(data: bytes) -> object:
    """Reads a task and does it."""
    function, item = pickle.loads(data)
    return function(item)


def main(directory: str, number: str) -> None:
    """Runs the tasks of a job, and writes each result when it is complete."""
    with open(os.path.join(directory, f"{number}.tasks"), "rb") as file:
        tasks = pickle.load(file)
    for n, data in tasks:
        path = os.path.join(directory, f"{n}.result")
        if not os.path.exists(path):
            part = f"{path}.{os.getpid()}.part"
            with open(part, "wb") as file:
                pickle.dump(guarded(call, data), file)
            os.replace(part, path)


if __name__ == "__main__":
    main(*sys.argv[1:])
