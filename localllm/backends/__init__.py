"""What a recorded program runs on."""
