"""The two looks of our own, dark and light; Textual's are there as well."""

from textual.theme import Theme

DARK = Theme(
    "localllm-dark",
    dark=True,
    primary="#6fa8dc",
    secondary="#8fbf8f",
    accent="#e5a550",
    warning="#e5a550",
    error="#e06c75",
    success="#7fbf7f",
    foreground="#d8dbe2",
    background="#14161a",
    surface="#1b1e24",
    panel="#23272f",
    boost="#1f232a",
    variables={"footer-background": "#1b1e24", "border": "#3a404b"},
)
LIGHT = Theme(
    "localllm-light",
    dark=False,
    primary="#1f5fa8",
    secondary="#3d7a3d",
    accent="#a85a00",
    warning="#a85a00",
    error="#b3262f",
    success="#2f7a35",
    foreground="#202328",
    background="#fdfdfb",
    surface="#f3f2ee",
    panel="#eae8e2",
    boost="#f7f6f2",
    variables={"footer-background": "#f3f2ee", "border": "#c9c6be"},
)
