"""Features, lags, scaling, time indexes and data frames."""
