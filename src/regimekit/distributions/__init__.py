"""Student-t mixtures: densities, quantiles, CRPS, and the public `Forecast`."""
