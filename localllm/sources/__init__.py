"""Where models come from: one file for each kind of source, found by the word before the colon."""
