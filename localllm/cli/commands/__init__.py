"""The commands: every module here has PANEL, its heading in the help, and COMMANDS by name."""
