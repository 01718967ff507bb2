"""Public benchmarks: changepoints, anomalies and forecasts on real series, untuned, with peers.

Every (task, series, peer) is one line of a committed file (`results`), so that a run can be stopped
and taken up again. A peer that is not installed or fails is a result like any other, counted and
shown.
"""
