"""The routes, by what they speak of."""
