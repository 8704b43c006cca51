"""F32: plain floats. Activations stay f32."""

from quant.floats import float_format
from quant.simd import get_f32, load_f32

FORMAT = float_format("F32", __name__, "<f4", load_f32, get_f32)
