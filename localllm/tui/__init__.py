"""The terminal faces: a line-by-line chat (`line`) and a full-screen one (`app`)."""
