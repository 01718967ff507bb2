"""What several tests of the service use."""

from __future__ import annotations

SMALL = {"model": "br_ihmm", "particles": 20, "noise": 0.16}
