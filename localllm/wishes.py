"""What a model that draws tokens itself is told of a row of logits: WISH_FIELDS f32.

The chain is llama.cpp's shortest: `top_k`, `top_p`, `min_p`, `temperature`, then a draw.
"""

# How many of the likeliest are left, 0 for no draw; which share of their probabilities is; how
# much lower than the best one's their logits may be; what divides these; a random number from 0
# to 1; how many ids must not come, and these.
TOP, SHARE, LEAST, HEAT, NUMBER, BANNED, FIRST_BANNED = range(7)
WISH_FIELDS = 16

MOST = 128  # TOP at most
MOST_BANNED = WISH_FIELDS - FIRST_BANNED
NOTHING = {SHARE: 2.0, LEAST: float("-inf"), HEAT: 1.0}  # what changes nothing
