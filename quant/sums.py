"""The integer sums of 32 columns, the way this processor finds them fastest."""

from quant.target import TARGET

if TARGET.narrow:
    from quant.narrow import eights, fives, fours, left_fours, scaled_sixes
else:
    from quant.wide import eights, fives, fours, left_fours, scaled_sixes

__all__ = ["eights", "fives", "fours", "left_fours", "scaled_sixes"]
