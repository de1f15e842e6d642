"""dwell for Python: networks in virtual time, captures, and the decision core itself.

* :mod:`dwell.sim` runs scenarios and sweeps.
* :mod:`dwell.trace` analyses and replays captures, and makes Arrow of their packets.
* :class:`dwell.Table` is what results come in: Arrow's columns, which pyarrow, pandas and polars take
  without copies.

The numbers are those of the program ``dwell``: it is the same code.
"""

from dwell import sim, trace
from dwell._dwell import CODE, CaptureError, Error, ScenarioError, Table, __version__

__all__ = ["CODE", "CaptureError", "Error", "ScenarioError", "Table", "__version__", "sim", "trace"]
