"""LLVM seen from Numba: what kernels are made of. Imported only where a kernel is compiled."""
