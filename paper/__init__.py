"""The paper's tables and figures, one file for each or for a closely related group.

It uses the library as anybody would and is not part of the wheel; `holdfast reproduce` runs it.

streams     the data, ready to run          settings   the paper's values and ours
parts       one run, computed once, kept    plan       how many runs of what
tables      cells, tables, items            runner     runs and writes, resumes
"""

from __future__ import annotations

from paper.catalogue import ITEMS, choose
from paper.plan import Plan
from paper.runner import reproduce

__all__ = ["ITEMS", "Plan", "choose", "reproduce"]
