"""Kernels: addresses and numbers in, results in memory; they know no model."""
