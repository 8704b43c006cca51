"""One module a group of endpoints; `server.app` collects the ROUTES of every module here."""
