"""The paper's tables and figures, one file for each or for a closely related group.

It uses the library as anybody would and is not part of the wheel; `regimekit reproduce` runs it.

streams     the data, ready to run          settings   the variants that are compared
parts       what to run, and its key        tuning     one search for every model and rule
state       which source decides it         plan       how many runs of what, how long
outcomes    runs it and scores it           store      keeps it, in one checkout and the next
probes      questions of another kind       runner     runs and writes, resumes
tables      cells, tables, items            output     the pages
replay      whether older runs still hold
"""

from __future__ import annotations

from paper.catalogue import ITEMS, choose
from paper.plan import Plan
from paper.runner import estimate, reproduce

__all__ = ["ITEMS", "Plan", "choose", "estimate", "reproduce"]
