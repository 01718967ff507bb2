"""Public benchmarks: changepoints, anomalies and forecasts on real series, untuned, with peers.

Every (task, series, peer) is one line of a committed file (`results`), so an interrupted run can be
resumed. A peer that is not installed or fails is a result, which is counted and shown.
"""
