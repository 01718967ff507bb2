"""The online infinite HMM: what happens inside a batch, and at its end."""
