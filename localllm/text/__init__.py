"""Text to tokens and back: knows vocabularies and chat templates, but no arrays and no models."""
