"""Files that nobody ever sees half of."""

from __future__ import annotations

import os
import tempfile
from typing import Union


def replace(path: Union[str, "os.PathLike[str]"], data: bytes) -> None:
    """Writes a file, whole or not at all."""
    directory = os.path.dirname(os.path.abspath(path))
    handle, part = tempfile.mkstemp(dir=directory, prefix=".part-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        os.chmod(part, 0o666 & ~_umask())
        os.replace(part, path)
    except BaseException:
        os.unlink(part)
        raise


def _umask() -> int:
    """Returns what the process takes from the rights of new files. It can be read only by setting it."""
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
