"""F16: IEEE half floats. Activations stay f32."""

from quant.floats import float_format
from quant.simd import get_f16, load_f16

FORMAT = float_format("F16", __name__, "<f2", load_f16, get_f16)
