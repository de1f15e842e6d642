"""Where results are kept, so that nothing is done twice: a directory, or anything that fsspec opens.

A store has files that are written once, whole, under names that follow from what is in them:

* ``runs/code=VERSION/HASH.parquet``: runs of simulations (schema ``dwell-store-runs/2``). Together they are a data
  set that pyarrow, polars and DuckDB read as one.
* ``captures/HASH.json.gz``: analyses of captures, as ``dwell trace analyze --out`` writes them.
* ``merged/HASH.json.gz``: their sums.
* ``pieces/HASH.*``: what long captures have been analysed to so far. When one has its analysis these are removed.
"""

from __future__ import annotations

import collections
import contextlib
import os
import posixpath
import uuid
from concurrent import futures
from typing import Any, Deque, Dict, Iterable, Iterator, List, Optional, Tuple, Union

from dwell._files import replace

__all__ = ["Store"]

OBJECTS = frozenset(
    ["s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oci", "ocilake", "oss", "memory"]
)
"""Protocols of fsspec whose objects appear when they are complete. Files of all others are moved to their names."""

READS = 16
"""So many files are read at once."""


class Store:
    """A directory (a path), or a URL that fsspec knows, as ``s3://bucket/prefix``.

    :param storage_options: for fsspec, if it is a URL: keys, endpoints.
    """

    def __init__(
        self,
        url: Union[str, "os.PathLike[str]"],
        storage_options: Optional[Dict[str, Any]] = None,
    ) -> None:
        self.url = os.fspath(url)
        self.storage_options = dict(storage_options or {})
        self._fs: Any = None
        if "://" in self.url:
            import fsspec

            self._fs, self._root = fsspec.core.url_to_fs(self.url, **self.storage_options)
        else:
            self._root = os.path.abspath(self.url)

    def __reduce__(self) -> Tuple[Any, ...]:
        return Store, (self.url if self._fs else self._root, self.storage_options)

    def write(self, name: str, data: bytes) -> None:
        """Writes a file, whole or not at all."""
        path = posixpath.join(self._root, name)
        if self._fs:
            self._write_remotely(path, data)
            return
        os.makedirs(os.path.dirname(path), exist_ok=True)
        replace(path, data)

    def _write_remotely(self, path: str, data: bytes) -> None:
        directory = posixpath.dirname(path)
        self._fs.makedirs(directory, exist_ok=True)
        protocol = self._fs.protocol
        if OBJECTS.intersection([protocol] if isinstance(protocol, str) else protocol):
            self._fs.pipe_file(path, data)
            return
        part = posixpath.join(directory, f".part-{uuid.uuid4().hex}")
        try:
            self._fs.pipe_file(part, data)
            self._fs.mv(part, path)
        except BaseException:
            if self._fs.exists(part):
                self._fs.rm_file(part)
            raise

    def read(self, name: str) -> bytes:
        """Returns the contents of a file."""
        path = posixpath.join(self._root, name)
        if self._fs:
            return self._fs.cat_file(path)
        with open(path, "rb") as file:
            return file.read()

    def remove(self, name: str) -> None:
        """Removes a file, if it is there."""
        path = posixpath.join(self._root, name)
        with contextlib.suppress(FileNotFoundError):
            if self._fs:
                self._fs.rm_file(path)
            else:
                os.remove(path)

    def read_each(self, names: Iterable[str]) -> Iterator[bytes]:
        """Yields the contents of files, in their order. Some are read at once: far away, waiting is what takes time."""
        with futures.ThreadPoolExecutor(READS) as readers:
            reading: Deque["futures.Future[bytes]"] = collections.deque()
            for name in names:
                reading.append(readers.submit(self.read, name))
                if len(reading) >= 2 * READS:
                    yield reading.popleft().result()
            while reading:
                yield reading.popleft().result()

    def names(self, directory: str) -> List[str]:
        """Returns the names of the files in a directory, none if there is none."""
        path = posixpath.join(self._root, directory)
        try:
            if self._fs:
                self._fs.invalidate_cache()
                found = [posixpath.basename(it) for it in self._fs.ls(path, detail=False)]
            else:
                found = os.listdir(path)
        except FileNotFoundError:
            return []
        return sorted(posixpath.join(directory, it) for it in found if it and not it.startswith("."))

    def __repr__(self) -> str:
        return f"<dwell.store.Store {self.url}>"


def opened(store: Union[None, str, "os.PathLike[str]", Store]) -> Optional[Store]:
    """Returns a store for what an argument may be."""
    return store if store is None or isinstance(store, Store) else Store(store)
