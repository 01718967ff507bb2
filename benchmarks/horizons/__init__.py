"""Rolling-origin comparison of forecasts several steps ahead."""
