"""What quantized weights are and how to multiply by them."""
