"""Emissions: the distribution of one observation given its regime, one file each."""
