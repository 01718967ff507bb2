"""One file per table or figure of the paper, or per closely related group.

streams     the data, ready to run          settings   the paper's values and ours
parts       one run, computed once, kept    plan       how many runs of what
tables      cells, tables, items            runner     runs and writes, resumes
"""

from __future__ import annotations

from holdfast.experiments.catalogue import ITEMS, choose
from holdfast.experiments.plan import Plan
from holdfast.experiments.runner import reproduce

__all__ = ["ITEMS", "Plan", "choose", "reproduce"]
