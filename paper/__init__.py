"""The paper's tables and figures, one file for each or for a closely related group.

It uses the library as anybody would and is not part of the wheel; `holdfast reproduce` runs it.

streams     the data, ready to run          settings   the variants that are compared
parts       one run, computed once, kept    tuning     one search for every model and rule
probes      questions of another kind       plan       how many runs of what, how long
tables      cells, tables, items            runner     runs and writes, resumes
"""

from __future__ import annotations

from paper.catalogue import ITEMS, choose
from paper.plan import Plan
from paper.runner import estimate, reproduce

__all__ = ["ITEMS", "Plan", "choose", "estimate", "reproduce"]
