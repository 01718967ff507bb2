"""The filter: particles over regime paths that share their regimes."""
