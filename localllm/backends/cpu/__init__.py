"""The CPU backend: programs lowered to compiled kernels, walked by a team of threads."""
