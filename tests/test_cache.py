"""Pages balance, and the prefix tree finds exactly what a plain dictionary of prefixes would."""

import random

import numpy as np
import pytest

from localllm.batch import PAGE
from localllm.cache.pages import Pages
from localllm.cache.radix import Miss, Radix


def prompt(*runs: int) -> np.ndarray:
    """Whole pages, each of one repeated id: prompt(1, 1, 2) is three pages."""
    return np.repeat(np.array(runs, np.int32), PAGE)


def put(tree: Radix, ids: np.ndarray, key: str = "") -> list[int]:
    """A sequence computes ids, gives them to the tree and ends."""
    pages = tree.match(key, ids)
    tree.pages.share(pages)
    pages = pages + [tree.pages.take() for _ in range(len(ids) // PAGE - len(pages))]
    pages = tree.insert(key, ids, pages)
    tree.pages.drop(pages)
    tree.pages.check()
    return pages


@pytest.fixture
def tree() -> Radix:
    return Radix(Pages(32))


def test_pages_are_counted_by_user():
    pages = Pages(3)
    page = pages.take()
    pages.share([page])
    pages.drop([page])
    assert (pages.free, pages.used, pages.available) == (2, 1, 2)
    pages.keep(page)
    pages.drop([page])
    assert (pages.free, pages.used, pages.cached, pages.available) == (2, 0, 1, 3)
    pages.forget(page)
    assert pages.free == 3
    pages.check()


def test_dropping_a_page_twice_is_caught():
    pages = Pages(2)
    page = pages.take()
    pages.drop([page])
    with pytest.raises(AssertionError, match="no user"):
        pages.drop([page])


def test_match_finds_whole_pages_only(tree):
    pages = put(tree, prompt(1, 2, 3))
    assert tree.match("", prompt(1, 2, 3, 4)) == pages
    assert tree.match("", prompt(1, 2, 3)[:-1]) == pages[:2]
    assert tree.match("", prompt(1, 9)) == pages[:1]
    assert tree.match("", prompt(2)) == []
    assert tree.match("", prompt(1)[:-1]) == []


def test_branches_share_what_they_have_in_common(tree):
    first = put(tree, prompt(1, 2, 3))
    second = put(tree, prompt(1, 2, 4, 5))
    assert first[:2] == second[:2] and not set(first[2:]) & set(second[2:])
    assert tree.pages.cached == 5
    assert tree.match("", prompt(1, 2, 3)) == first
    assert tree.match("", prompt(1, 2, 4, 5)) == second


def test_keys_do_not_see_each_other(tree):
    put(tree, prompt(1, 2), key="a")
    assert tree.match("b", prompt(1, 2)) == []


def test_of_two_that_computed_the_same_the_first_page_stays(tree):
    mine, yours = tree.pages.take(), tree.pages.take()
    assert tree.insert("", prompt(7), [mine]) == [mine]
    assert tree.insert("", prompt(7), [yours]) == [mine]
    tree.pages.check()
    assert (tree.pages.used, tree.pages.free) == (1, 31)


def test_evict_takes_the_least_recently_used_leaf_from_its_end(tree):
    old, new = put(tree, prompt(1, 2, 3)), put(tree, prompt(4, 5))
    tree.evict(1)
    assert tree.match("", prompt(1, 2, 3)) == old[:2]
    tree.match("", prompt(4, 5))
    tree.evict(2)
    assert tree.match("", prompt(1)) == [] and tree.match("", prompt(4, 5)) == new
    assert tree.evictions == 3


def test_evict_spares_what_a_sequence_uses(tree):
    pages = put(tree, prompt(1, 2, 3, 4))
    tree.pages.share(pages[:2])
    tree.evict(2)
    assert tree.match("", prompt(1, 2, 3, 4)) == pages[:2]
    assert tree.pages.available == tree.pages.free
    tree.insert("", prompt(1, 2), pages[:2])
    tree.pages.drop(pages[:2])
    tree.clear()
    assert tree.pages.free == tree.pages.total and not tree._roots


def test_a_parent_goes_after_its_children(tree):
    put(tree, prompt(1, 2))
    put(tree, prompt(1, 3))
    put(tree, prompt(1, 4))
    tree.evict(3)
    assert len(tree.match("", prompt(1))) == 1
    tree.evict(1)
    assert tree.match("", prompt(1)) == []


def test_a_miss_names_the_first_differing_token(tree):
    put(tree, prompt(1, 2, 3))
    put(tree, prompt(1, 2, 4))
    given = prompt(1, 2, 4)
    given[2 * PAGE + 5] = 9
    assert tree.explain("", given) == Miss(2 * PAGE + 5, known=4, given=9)
    assert tree.explain("", prompt(1, 2, 4, 6)) == Miss(3 * PAGE, known=None, given=6)
    assert tree.explain("", prompt(1)) == Miss(PAGE, known=2, given=None)
    assert tree.explain("other", prompt(1)) == Miss(0, known=None, given=1)
    assert tree.explain("", prompt(8)) == Miss(0, known=1, given=8)


class Twin:
    """What a tree should know: every prefix of whole pages -> its page."""

    def __init__(self):
        self.pages: dict[bytes, int] = {}

    def match(self, ids: np.ndarray) -> list[int]:
        found = []
        for end in range(PAGE, len(ids) + 1, PAGE):
            page = self.pages.get(ids[:end].tobytes())
            if page is None:
                break
            found.append(page)
        return found

    def put(self, ids: np.ndarray, pages: list[int]) -> None:
        for page, end in zip(pages, range(PAGE, len(ids) + 1, PAGE), strict=True):
            self.pages[ids[:end].tobytes()] = page

    def forget(self, kept: bytearray) -> None:
        self.pages = {ids: page for ids, page in self.pages.items() if kept[page]}


@pytest.mark.parametrize("seed", range(8))
def test_random_moves_against_a_dictionary(seed):
    rng, tree, twin = random.Random(seed), Radix(Pages(40)), Twin()
    running: list[tuple[np.ndarray, list[int], int]] = []
    for _ in range(500):
        move = rng.random()
        ids = prompt(*(rng.randrange(3) for _ in range(rng.randrange(1, 7))))
        if move < 0.5 and tree.pages.available >= 6:
            pages = tree.match("", ids)
            assert pages == twin.match(ids)
            tree.pages.share(pages)
            tree.evict(max(0, len(ids) // PAGE - len(pages) - tree.pages.free))
            twin.forget(tree.pages._kept)
            found = len(pages)
            pages += [tree.pages.take() for _ in range(len(ids) // PAGE - found)]
            running.append((ids, pages, found))
        elif move < 0.9 and running:
            ids, pages, found = running.pop(rng.randrange(len(running)))
            done = rng.randint(found, len(pages))  # cancelled before, or at the end
            pages[:done] = tree.insert("", ids[: done * PAGE], pages[:done])
            twin.put(ids[: done * PAGE], pages[:done])
            tree.pages.drop(pages)
        elif tree.pages.available > tree.pages.free:
            tree.evict(1)
            twin.forget(tree.pages._kept)
        tree.pages.check()
        assert tree.pages.cached == len(twin.pages)
