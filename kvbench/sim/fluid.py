"""An engine instance between two events: prompts are computed in turn, and tokens come at the rate of the steps.

It is the scheduler's model (`engine.scheduler`: continuous batching, chunked prefill, first come first served) as
rates: while a prompt is computed, each step takes a chunk of it and gives every running request a token; without one,
a step gives tokens alone. A request costs a few events, however many tokens it has; the scheduler costs one for each
step. That both give the same TTFT and throughput is tested.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from heapq import heappop, heappush
from math import ceil

from kvbench.engine.cost import Chunk, CostModel
from kvbench.sim.agenda import Agenda

_TOKENS_APART = 4096  # contexts are told apart so finely when a step's time is looked up
_NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class Job:
    """What a request asks for: `missing` tokens of its prompt after `cached` ones, then `output_tokens`, at least 1."""

    request: int
    missing: int
    cached: int
    output_tokens: int


class Instance:
    """One instance. `first_token` and `finished` are called with the number of a request when it has got so far."""

    def __init__(
        self,
        agenda: Agenda,
        cost: CostModel,
        step_tokens: int,
        first_token: Callable[[int], None],
        finished: Callable[[int], None],
    ) -> None:
        self._agenda, self._cost, self._step_tokens = agenda, cost, step_tokens
        self._first_token, self._finished = first_token, finished
        self._prompts: deque[Job] = deque()
        self._left = 1.0  # of the first prompt, as a share
        self._decoding: list[tuple[float, int, int]] = []  # a heap: step at which it ends, request, its tokens
        self._contexts = 0  # tokens of all that decode
        self._steps = 0.0
        self._at_s = self._computed_s = 0.0
        self._plan_number = 0
        self._decode_s = lru_cache(maxsize=65536)(self._decode)

    def add(self, job: Job) -> None:
        """A request has its pages, and wants the rest computed."""
        self._advance()
        self._prompts.append(job)
        self._plan()

    def computed_s(self) -> float:
        """For how long prompts have been computed."""
        self._advance()
        return self._computed_s

    # ------------------------------------------------------------ rates, and what follows from them

    def _rates(self) -> tuple[float, float]:
        """Shares of the first prompt per second, and steps per second."""
        running = len(self._decoding)
        step_s = self._decode_s(running, ceil(self._contexts / _TOKENS_APART))
        if not self._prompts:
            return 0.0, 1 / step_s if running else 0.0
        job = self._prompts[0]
        steps = ceil(job.missing / max(1, self._step_tokens - running))
        seconds = self._cost.prefill_s((Chunk(job.missing, job.cached),)) + steps * step_s
        return 1 / seconds, steps / seconds

    def _decode(self, running: int, contexts: int) -> float:
        return self._cost.decode_s([contexts * _TOKENS_APART // running] * running) if running else 0.0

    def _advance(self) -> None:
        """Let the time since the last event pass."""
        now_s = self._agenda.now_ns / 1e9
        prompts_per_s, steps_per_s = self._rates()
        self._computed_s += now_s - self._at_s if self._prompts else 0.0
        self._left -= (now_s - self._at_s) * prompts_per_s
        self._steps += (now_s - self._at_s) * steps_per_s
        self._at_s = now_s

    def _plan(self) -> None:
        """Set the moment of the next event; a plan made before is void."""
        self._plan_number += 1
        prompts_per_s, steps_per_s = self._rates()
        prompt_s = max(0.0, self._left) / prompts_per_s if prompts_per_s else _NEVER
        decode_s = max(0.0, self._decoding[0][0] - self._steps) / steps_per_s if self._decoding else _NEVER
        if self._prompts or self._decoding:
            at_ns = self._agenda.now_ns + round(1e9 * min(prompt_s, decode_s))
            self._agenda.at(at_ns, self._happen, self._plan_number, prompt_s <= decode_s)

    def _happen(self, plan_number: int, is_prompt: bool) -> None:
        if plan_number != self._plan_number:
            return
        self._advance()
        done: Callable[[], None] = self._prompt_done if is_prompt else self._decode_done
        done()
        self._plan()

    def _prompt_done(self) -> None:
        job = self._prompts.popleft()
        self._left = 1.0
        self._first_token(job.request)
        if job.output_tokens == 1:
            self._finished(job.request)
            return
        tokens = job.cached + job.missing + job.output_tokens // 2  # the mean over its time
        heappush(self._decoding, (self._steps + job.output_tokens - 1, job.request, tokens))
        self._contexts += tokens

    def _decode_done(self) -> None:
        _, request, tokens = heappop(self._decoding)
        self._contexts -= tokens
        self._finished(request)
