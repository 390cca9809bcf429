"""The operator of a fleet in a cluster: evicts what is gone, drains, scales, restarts, and says what is wrong."""
