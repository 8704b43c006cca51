"""Which KV is where: pages and the tree of known prefixes."""
