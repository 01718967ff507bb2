"""The models: the infinite HMM family and every system it is compared with."""
