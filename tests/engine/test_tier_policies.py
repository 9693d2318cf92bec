"""Memory tiers of the engine by any policy: the one interface that the storage tiers have too."""

import pytest

from kvbench.engine.tiers import Tier
from kvbench.store.policy import LeavesFirst, Lfu, Lru, S3Fifo


def use(tier: Tier, pages: str) -> None:
    for page in pages:
        assert tier.acquire(page)
        tier.release(page)


@pytest.mark.parametrize(
    ("policy", "stays"),
    [(Lru(), "bcd"), (Lfu(), "acd"), (S3Fifo(3), "acd"), (LeavesFirst({"c": "b"}.get), "bcd")],
)
def test_the_policy_says_which_page_without_references_goes(policy, stays):
    tier = Tier(3, policy)
    use(tier, "aaabcd")  # c comes after b in a prompt
    assert [page for page in "abcd" if page in tier] == list(stays)


@pytest.mark.parametrize("policy", [Lru, Lfu, lambda: S3Fifo(2)], ids=["LRU", "LFU", "S3-FIFO"])
def test_a_page_in_use_stays_whatever_the_policy(policy):
    tier = Tier(2, policy())
    tier.acquire("a")
    use(tier, "bcdbc")
    assert "a" in tier
    assert tier.room() == 1
    tier.release("a")
    tier.clear()
    assert len(tier) == 0
