"""BF16: the upper half of an f32. Activations stay f32."""

from quant.floats import float_format
from quant.simd import get_bf16, load_bf16

FORMAT = float_format("BF16", __name__, "<u2", load_bf16, get_bf16)
