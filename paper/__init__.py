"""The paper's tables and figures, one file for each or for a closely related group.

It uses the public interface of the library and is not part of the wheel; `regimekit reproduce` runs
it.

    streams     the data, ready to run          settings   the variants that are compared
    parts       one run, and its key            tuning     one search for every model and rule
    state       hash of the source              plan       number and cost of the runs
    outcomes    runs a part and scores it       store      cache and ledger of outcomes
    probes      questions other than runs       runner     runs parts, writes items, resumes
    tables      cells, tables, items            output     the pages
    replay      confirms runs of older source
"""

from __future__ import annotations

from paper.catalogue import ITEMS, choose
from paper.plan import Plan
from paper.runner import estimate, reproduce

__all__ = ["ITEMS", "Plan", "choose", "estimate", "reproduce"]
