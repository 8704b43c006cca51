"""A product over and over, in one call: what multiply-adds are measured with."""

from quant.jit import kernel
from quant.threads import call6


@kernel(8)
def again(times, product, w, x, blocks, pitch, count, out):
    """Call a product kernel that many times with the same arguments."""
    for _ in range(times):
        call6(product, w, x, blocks, pitch, count, out)
