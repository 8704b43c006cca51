"""Speed, measured: tokens a second of prompts and generation, beside another runner if wanted."""
