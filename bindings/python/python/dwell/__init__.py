"""dwell for Python: networks in virtual time, captures, and the decision core itself.

* :mod:`dwell.sim` runs scenarios and sweeps.
* :mod:`dwell.trace` analyses and replays captures, and makes Arrow of their packets.
* :class:`dwell.Port` is the decision core itself, step by step.
* :mod:`dwell.codec` has the codecs of packets, :mod:`dwell.stream` compressed streams.
* :mod:`dwell.engines` and :mod:`dwell.store` are where tasks run, and where results are kept.
* :class:`dwell.Table` is what results come in: Arrow's columns, which pyarrow, pandas and polars take
  without copies.

The numbers are those of the program ``dwell``: it is the same code.
"""

from dwell import codec, engines, sim, store, stream, trace
from dwell._dwell import (
    CODE,
    CaptureError,
    Compress,
    Drop,
    Error,
    Mark,
    Port,
    ScenarioError,
    Send,
    Table,
    __version__,
)

__all__ = [
    "CODE",
    "CaptureError",
    "Compress",
    "Drop",
    "Error",
    "Mark",
    "Port",
    "ScenarioError",
    "Send",
    "Table",
    "__version__",
    "codec",
    "engines",
    "sim",
    "store",
    "stream",
    "trace",
]
