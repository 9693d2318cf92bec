"""Pages that come and go, without any I/O: in which order, how many at once, at which pace."""

from collections import Counter

from kvbench.pages.turnover import Turnover
from kvbench.store.core import Delete, Done, Read, Status, Write

MS = 10**6


class Nodes:
    """Ends every command a millisecond after it began, the first that began first."""

    def __init__(self, turnover: Turnover, status: Status = Status.OK) -> None:
        self.turnover, self.status = turnover, status
        self.now_ns = 0
        self.log: list[Read | Write | Delete] = []
        self.most_at_once = 0
        self._under_way: list[Read | Write | Delete] = []

    def go(self, steps: int) -> None:
        for _ in range(steps):
            begun = self.turnover.ready(self.now_ns)
            self.log += begun
            self._under_way += begun
            self.most_at_once = max(self.most_at_once, len(self._under_way))
            self.now_ns += MS
            if self._under_way:
                self.turnover.done(self.now_ns, Done(self._under_way.pop(0).io, self.status, MS))


def test_a_page_is_read_once_after_all_others_have_been_written_and_then_deleted() -> None:
    nodes = Nodes(Turnover(nodes=1, pages=20, at_once=4, seed=1))
    nodes.go(400)
    place: dict[tuple[type, object], int] = {}
    for number, command in enumerate(nodes.log):
        assert (type(command), command.page) not in place, "nothing is done twice to a page"
        place[type(command), command.page] = number
    written = [command.page for command in nodes.log if isinstance(command, Write)]
    read = [command.page for command in nodes.log if isinstance(command, Read)]
    assert read == written[: len(read)]
    assert len(read) > 100
    for page in (page for kind, page in place if kind is Delete):
        assert place[Write, page] < place[Read, page] < place[Delete, page]


def test_the_number_of_pages_stays_what_it_is() -> None:
    nodes = Nodes(Turnover(nodes=1, pages=20, at_once=4, seed=1))
    nodes.go(400)
    counts = Counter(type(command) for command in nodes.log)
    assert 16 <= counts[Write] - counts[Delete] <= 20
    assert nodes.most_at_once == 4


def test_pages_are_spread_evenly_over_the_nodes() -> None:
    nodes = Nodes(Turnover(nodes=3, pages=30, at_once=4, seed=1))
    nodes.go(300)
    counts = Counter(command.node for command in nodes.log if isinstance(command, Write))
    assert max(counts.values()) - min(counts.values()) <= 1


def test_a_pace_holds_the_reads_back_and_says_for_how_long() -> None:
    turnover = Turnover(nodes=1, pages=4, at_once=4, seed=1, interval_ns=10 * MS)
    nodes = Nodes(turnover)
    nodes.go(204)
    assert 20 <= sum(isinstance(command, Read) for command in nodes.log) <= 21
    while (wait_ns := turnover.wait_ns(nodes.now_ns)) is None:
        nodes.go(1)
    assert 0 < wait_ns < 10 * MS
    assert turnover.ready(nodes.now_ns + wait_ns - 1) == []
    assert [type(command) for command in turnover.ready(nodes.now_ns + wait_ns)] == [Read]


def test_what_an_outage_cost_is_not_made_up_for() -> None:
    turnover = Turnover(nodes=1, pages=8, at_once=4, seed=1, interval_ns=100 * MS)
    nodes = Nodes(turnover)
    nodes.go(20)
    nodes.now_ns += 70 * 10**9
    nodes.go(1000)
    reads = [command for command in nodes.log if isinstance(command, Read)]
    assert len(reads) < 30


def test_in_place_of_a_page_that_could_not_be_written_comes_another() -> None:
    nodes = Nodes(Turnover(nodes=1, pages=5, at_once=2, seed=1), Status.EIO)
    nodes.go(50)
    assert not nodes.turnover.is_full
    assert {type(command) for command in nodes.log} == {Write}
    assert len({command.page for command in nodes.log}) == len(nodes.log)
    nodes.status = Status.OK
    nodes.go(50)
    assert nodes.turnover.is_full


def test_when_stopped_it_brings_no_more_and_is_over_when_all_has_ended() -> None:
    nodes = Nodes(Turnover(nodes=1, pages=20, at_once=4, seed=1))
    nodes.go(50)
    nodes.turnover.stop()
    begun = len(nodes.log)
    assert not nodes.turnover.is_over
    nodes.go(10)
    assert nodes.turnover.is_over
    assert len(nodes.log) == begun
