"""Prompts are the same for the same seed and salt, and share nothing otherwise."""

from __future__ import annotations

import json
from itertools import combinations

import pytest

from kvbench.load import prompts


def test_prompts_have_the_exact_length_and_stay_in_the_vocabulary():
    sessions = prompts.session_prompts(1, "run/c8/0/1", 4, 1000, 300)
    assert [len(session) for session in sessions] == [1000] * 4
    assert all(10 <= token < 300 for session in sessions for token in session)


def test_the_same_seed_and_salt_give_the_same_prompts():
    assert prompts.session_prompts(1, "a", 2, 50, 300) == prompts.session_prompts(1, "a", 2, 50, 300)
    assert (
        prompts.session_text(1, "a", 0, 9) == prompts.session_text(1, "a", 0, 9) != prompts.session_text(1, "a", 1, 9)
    )


def test_more_sessions_do_not_change_those_before_them():
    assert prompts.session_prompts(1, "a", 5, 50, 300)[:2] == prompts.session_prompts(1, "a", 2, 50, 300)


@pytest.mark.parametrize(("seed", "salt"), [(2, "a"), (1, "b"), (1, "")])
def test_another_seed_or_salt_shares_no_prefix(seed, salt):
    ours = prompts.session_prompts(1, "a", 8, 16, 30_000)
    theirs = prompts.session_prompts(seed, salt, 8, 16, 30_000)
    assert all(one[:4] != other[:4] for one in ours for other in theirs)


def test_no_two_sessions_share_a_prefix():
    sessions = prompts.session_prompts(1, "a", 32, 16, 30_000)
    assert all(one[:4] != other[:4] for one, other in combinations(sessions, 2))


def test_a_body_asks_for_exact_greedy_streamed_output_with_usage():
    asked = json.loads(prompts.completion_body("m", [11, 12], 64))
    assert asked == {
        "model": "m",
        "prompt": [11, 12],
        "max_tokens": 64,
        "temperature": 0,
        "ignore_eos": True,
        "stream": True,
        "stream_options": {"include_usage": True},
    }


def test_a_body_without_stream_options_is_else_the_same():
    body = prompts.chat_body("m", "缓存", 1)
    whole, without = json.loads(body), json.loads(prompts.without_stream_options(body))
    assert whole.pop("stream_options") == {"include_usage": True}
    assert without == whole
    assert whole["messages"] == [{"role": "user", "content": "缓存"}]
