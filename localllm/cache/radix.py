"""The tree of known prefixes: whole pages of KV, found by the token ids they hold."""

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count

import numpy as np

from localllm.batch import PAGE
from localllm.cache.pages import Pages


@dataclass(eq=False, slots=True)
class Node:
    """A run of pages that follow the parent's; children differ from each other in their first."""

    parent: "Node | None"
    ids: np.ndarray  # (PAGE * pages,) i32
    pages: list[int]
    used: int = 0  # when it was last matched or inserted, by the tree's clock
    children: dict[bytes, "Node"] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Miss:
    """Where a prompt left the tree: at `position` the nearest known prompt has `known`.

    known is None where the tree simply ends; given is None where the prompt does.
    """

    position: int
    known: int | None
    given: int | None


class Radix:
    """Prefixes of any number of keys (adapters, tenants) over one pool of pages.

    A sequence that uses a kept page uses all pages before it too, so what nobody uses can always
    be evicted from the leaves up. Match and insert take time in proportion to the prompt; evict
    takes O(log n) for each leaf: a heap by last use, where outdated entries are skipped.
    """

    def __init__(self, pages: Pages):
        self.pages = pages
        self.evictions = 0  # pages evicted so far
        self._roots: dict[str, Node] = {}
        self._heap: list[tuple[int, int, Node]] = []
        self._clock, self._serials = 0, count()
        self._nodes = 0

    def match(self, key: str, ids: np.ndarray) -> list[int]:
        """The pages of the longest known prefix of ids (n,) i32; whole pages only."""
        found: list[int] = []
        for node, pages in self._walk(key, ids):
            found += node.pages[:pages]
        return found

    def insert(self, key: str, ids: np.ndarray, pages: list[int]) -> list[int]:
        """Keep these pages, which hold ids (PAGE * len(pages),) i32 and which the caller uses.

        Returns the pages to use from now on: where the tree already knows a page of the same
        ids, the caller gets that one in exchange for its own. A sequence that ends calls this
        before it drops its pages, also when it has none to add: its path becomes evictable.
        """
        assert len(ids) == PAGE * len(pages)
        if not pages:
            return []
        node, agree = self._roots.setdefault(key, _root()), 0
        known: list[int] = []
        for node, agree in self._walk(key, ids):
            known += node.pages[:agree]
        self.pages.share(known)
        self.pages.drop(pages[: len(known)])
        if new := pages[len(known) :]:
            if agree < len(node.pages):
                node = self._split(node, agree)
            self._extend(node, ids[len(known) * PAGE :], new)
        return known + new

    def evict(self, wanted: int) -> None:
        """Free this many pages, least recently used leaves first; there must be that many."""
        while wanted > 0 and self._heap:
            used, _, node = heapq.heappop(self._heap)
            if _is_leaf(node, used):
                wanted -= self._trim(node, wanted)
                if node.pages and wanted <= 0:
                    self._push(node)  # else somebody uses the rest, and brings it back in the end
        assert wanted <= 0, f"{wanted} pages more were promised than could be evicted"

    def explain(self, key: str, ids: np.ndarray) -> Miss:
        """Where ids (n,) i32 first differ from the most similar prompt in the tree."""
        node, at = self._roots.get(key, _root()), 0
        rest: list[np.ndarray] | None = None
        for node, agree in self._walk(key, ids, touch=False):
            at += agree * PAGE
            if agree < len(node.pages):
                rest = [node.ids[agree * PAGE :]]
        if rest is None:
            rest = [child.ids for child in node.children.values()]
        agrees = [_common(known, ids[at:]) for known in rest]
        best = max(range(len(rest)), key=agrees.__getitem__, default=None)
        if best is None:
            return Miss(at, None, _at(ids, at))
        return Miss(at + agrees[best], _at(rest[best], agrees[best]), _at(ids, at + agrees[best]))

    def clear(self) -> None:
        """Forget everything that nobody uses."""
        self.evict(self.pages.available - self.pages.free)

    # ---- the tree itself

    def _walk(self, key: str, ids: np.ndarray, touch: bool = True) -> Iterator[tuple[Node, int]]:
        """Yields each node on the way and how many of its pages agree: all, but for the last's."""
        node, at = self._roots.get(key), 0
        while node and (node := node.children.get(ids[at : at + PAGE].tobytes())):
            agree = _common(node.ids, ids[at:]) // PAGE
            if touch:
                self._touch(node)
            yield node, agree
            if agree < len(node.pages):
                return
            at += agree * PAGE

    def _extend(self, node: Node, ids: np.ndarray, pages: list[int]) -> None:
        """Hang pages below a node, or onto it when it is a leaf."""
        for page in pages:
            self.pages.keep(page)
        if node.parent and not node.children:
            node.ids = np.concatenate([node.ids, ids])
            node.pages += pages
        else:
            parent, node = node, Node(node, ids.copy(), list(pages))
            parent.children[_first(node)] = node
            self._nodes += 1
        self._touch(node)

    def _split(self, node: Node, at: int) -> Node:
        """Cut a node after `at` pages; returns the upper part."""
        upper = Node(node.parent, node.ids[: at * PAGE], node.pages[:at], node.used)
        assert node.parent
        node.parent.children[_first(node)] = upper
        node.parent, node.ids, node.pages = upper, node.ids[at * PAGE :], node.pages[at:]
        upper.children[_first(node)] = node
        self._nodes += 1
        return upper

    def _trim(self, leaf: Node, wanted: int) -> int:
        """Forget up to `wanted` unused pages from a leaf's end; returns how many."""
        gone = 0
        while leaf.pages and gone < wanted and not self.pages.in_use(leaf.pages[-1]):
            if len(leaf.pages) == 1:
                self._unhang(leaf)
            self.pages.forget(leaf.pages.pop())
            gone += 1
        leaf.ids = leaf.ids[: len(leaf.pages) * PAGE]
        self.evictions += gone
        return gone

    def _unhang(self, leaf: Node) -> None:
        parent = leaf.parent
        assert parent
        del parent.children[_first(leaf)]
        self._nodes -= 1
        if parent.parent:
            self._push(parent)
        elif not parent.children:
            self._roots = {key: root for key, root in self._roots.items() if root is not parent}

    def _touch(self, node: Node) -> None:
        self._clock += 1
        node.used = self._clock
        self._push(node)

    def _push(self, node: Node) -> None:
        """Make a leaf known to evict."""
        if node.children:
            return
        heapq.heappush(self._heap, (node.used, next(self._serials), node))
        if len(self._heap) > 64 + 4 * self._nodes:  # mostly outdated entries
            self._heap = [entry for entry in self._heap if _is_leaf(entry[2], entry[0])]
            heapq.heapify(self._heap)


def _root() -> Node:
    return Node(None, np.empty(0, np.int32), [])


def _is_leaf(node: Node, used: int) -> bool:
    """Whether a node is a leaf and was not used since."""
    return bool(node.pages) and not node.children and node.used == used


def _at(ids: np.ndarray, position: int) -> int | None:
    return int(ids[position]) if position < len(ids) else None


def _first(node: Node) -> bytes:
    return node.ids[:PAGE].tobytes()


def _common(a: np.ndarray, b: np.ndarray) -> int:
    """How many tokens two arrays have in common at their beginning."""
    shorter = min(len(a), len(b))
    differ = a[:shorter] != b[:shorter]
    return int(differ.argmax()) if differ.any() else shorter
