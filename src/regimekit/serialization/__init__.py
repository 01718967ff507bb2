"""How a snapshot's header and arrays become bytes, and bytes become them again.

    compact   what is written now (format 3) or was (format 2): few bytes, quickly read
    zipped    what was written before (format 1): a zip of JSON and .npy files; only read

Both know nothing of models. Bytes may come from anywhere: sizes are compared with limits before
anything is inflated, and what they hold is looked at before it is made.
"""

from __future__ import annotations

from regimekit.core.exceptions import SnapshotError

LARGEST = 2**29  # bytes of all arrays of a snapshot together, inflated
LARGEST_HEADER = 2**24
MOST_ARRAYS = 1000


def not_whole(what: str, error: object) -> SnapshotError:
    """The refusal of bytes that are no snapshot, or no longer one."""
    return SnapshotError(
        f"Not a whole regimekit snapshot ({what}): truncated, damaged or foreign ({error})."
    )
