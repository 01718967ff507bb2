"""Largest sizes of a model.

One table for arguments in Python, settings on the command line, requests to the service and
snapshots. The values are far above any use; they prevent a typing error or a crafted file from
using hours or all memory.
"""

from __future__ import annotations

MAX_HORIZON = 100_000  # steps ahead of one forecast
MAX_DIM = 100  # coordinates of y, for models with a covariance matrix
MAX_COORDINATES = 10_000  # coordinates of y, for all models
MAX_FEATURES = 1000  # features of one term, and terms
MAX_COEFFICIENTS = 1000  # of one regression
MAX_PARTICLES = 100_000
MAX_ISLANDS = 100
MAX_BATCH = 1000  # observations
MAX_REGIMES = 1000  # of one particle
MAX_SWEEPS = 10_000_000  # structure sweeps of all particles together at the end of a batch
MAX_CLOUD = 100_000  # points of a GARCH regime
MAX_PERIOD = 1_000_000  # observations per season
MAX_RUN_LENGTHS = 100_000
MAX_TRAINING = 100_000  # observations that the learning rate of dsm_bocd is fitted to
MAX_ITERATIONS = 100_000  # sweeps of one chain of beam_ihmm
MAX_CHAINS = 100
MAX_SNAPSHOT_BYTES = 2**29  # of a file, and of its arrays together
