"""Hands out the pages of the KV pool and counts who uses each."""

from collections.abc import Iterable


class Pages:
    """Pages 0 .. total - 1. A page is free, used by sequences, kept by the prefix tree, or both.

    A page that is kept but used by nobody can be had back through the tree, whenever somebody
    needs it: `available` counts those and the free ones.
    """

    def __init__(self, total: int):
        self.total = total
        self._free = list(range(total - 1, -1, -1))  # taken from the end: low pages first
        self._users = [0] * total
        self._kept = bytearray(total)
        self.used = 0  # pages that sequences use
        self.cached = 0  # pages that the tree keeps

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def available(self) -> int:
        return self.total - self.used

    def take(self) -> int:
        """A free page for one user; there must be one."""
        page = self._free.pop()
        self._users[page] = 1
        self.used += 1
        return page

    def share(self, pages: Iterable[int]) -> None:
        """One more user for each of these."""
        for page in pages:
            self.used += not self._users[page]
            self._users[page] += 1

    def drop(self, pages: Iterable[int]) -> None:
        """One user less for each of these; free again when nobody is left."""
        for page in pages:
            assert self._users[page] > 0, f"page {page} has no user to drop"
            self._users[page] -= 1
            if not self._users[page]:
                self.used -= 1
                self._free_unless_kept(page)

    def in_use(self, page: int) -> bool:
        return self._users[page] > 0

    def keep(self, page: int) -> None:
        """The tree keeps this page, which somebody uses."""
        assert self._users[page] and not self._kept[page]
        self._kept[page] = 1
        self.cached += 1

    def forget(self, page: int) -> None:
        """The tree lets go of this page."""
        assert self._kept[page]
        self._kept[page] = 0
        self.cached -= 1
        self._free_unless_kept(page)

    def _free_unless_kept(self, page: int) -> None:
        if not self._users[page] and not self._kept[page]:
            self._free.append(page)

    def check(self) -> None:
        """The books balance: every page is in exactly one state, and the counts agree."""
        idle = [p for p in range(self.total) if not self._users[p] and not self._kept[p]]
        assert sorted(self._free) == idle, "free pages and pages without users differ"
        assert min(self._users, default=0) >= 0, "a page has fewer than no users"
        assert self.used == sum(users > 0 for users in self._users)
        assert self.cached == sum(self._kept)
