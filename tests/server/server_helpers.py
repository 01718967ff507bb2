"""What several tests of the service use."""

from __future__ import annotations

from pathlib import Path

CHROMIUM = Path("/usr/bin/chromium")
SMALL = {"model": "br_ihmm", "particles": 20, "noise": 0.16}
