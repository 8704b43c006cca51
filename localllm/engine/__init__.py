"""Many requests, one model: who runs next, and the thread that runs them."""
