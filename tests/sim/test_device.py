"""A modelled node by hand: rates, channels, interference, cliff and links; luck does not depend on the past."""

from statistics import fmean, median

import pytest

from kvbench.sim import luck
from kvbench.sim.agenda import Agenda
from kvbench.sim.device import Link, Node, NodeModel

MB, S = 10**6, 10**9


def node(link=None, **figures):
    model = NodeModel(**{"read_rate": 100 * MB, "write_rate": 50 * MB, "channels": 4, "latency": 0.0, **figures})
    return Node(model, 0, 0, link)


def ends(times):
    return [end_ns / S for _, end_ns in times]


def test_bytes_pass_a_medium_in_turn():
    one = node()
    assert ends(one.read(0, 100 * MB, i) for i in range(3)) == [1, 2, 3]
    assert one.bytes_read == 300 * MB


def test_writes_pass_at_their_own_rate():
    assert ends([node().write(0, 100 * MB, 0)]) == [2]


def test_latency_is_added_beside_the_bytes_as_far_as_channels_go():
    one = node(latency=1.0, latency_sigma=0.0, channels=2)
    times = [one.read(0, 10 * MB, i) for i in range(3)]
    assert ends(times) == [pytest.approx(1.1), pytest.approx(1.2), pytest.approx(2.2)]
    assert times[2][0] == pytest.approx(1.1 * S), "the third waits for a channel"


def test_reads_are_slowed_while_writes_are_under_way():
    one = node(write_slowdown=0.5)
    one.write(0, 50 * MB, 0)
    assert ends([one.read(0, 100 * MB, 1)]) == [1 + 1.5]
    assert ends([one.read(10 * S, 100 * MB, 2)]) == [11]


def test_writes_fall_to_the_cliff_and_recover():
    one = node(burst=100 * MB, cliff_rate=10 * MB)
    assert ends([one.write(0, 100 * MB, 0)]) == [2]
    assert ends([one.write(2 * S, 50 * MB, 1)]) == [2 + 20 / 50 + 30 / 10], "20 MB had drained in 2 s"
    assert ends([one.write(100 * S, 100 * MB, 2)]) == [102], "all had drained"


def test_nodes_behind_a_link_share_its_rate():
    link = Link(100 * MB)
    first, second = node(link), node(link)
    assert ends([first.read(0, 100 * MB, 0), second.read(0, 100 * MB, 0)]) == [1, 2]


def test_a_sync_ends_after_the_writes_before_it():
    one = node()
    one.write(0, 100 * MB, 0)
    assert ends([one.sync(0, 1)]) == [2]


def test_a_share_of_operations_fails_and_always_the_same_ones():
    one, again = node(fault_share=0.1), node(fault_share=0.1)
    failed = [operation for operation in range(10_000) if one.fails(operation)]
    assert len(failed) == pytest.approx(1000, rel=0.1)
    assert all(again.fails(operation) for operation in failed)


def test_luck_is_that_of_the_node_and_the_operation():
    assert luck.uniform_bits(1, 2, 3) == luck.uniform_bits(1, 2, 3)
    others = {luck.uniform_bits(seed, number, 3) for seed in range(10) for number in range(10)}
    assert len(others) == 100


def test_latencies_have_their_median_and_spread():
    values = [luck.pick(luck.lognormal(0.5), luck.uniform_bits(0, 0, operation)) for operation in range(20_000)]
    assert median(values) == pytest.approx(1.0, rel=0.02)
    assert fmean(values) == pytest.approx(1.133, rel=0.02), "exp(0.5² ÷ 2)"


@pytest.mark.parametrize("figures", [{"read_rate": 0}, {"channels": 0}, {"burst": MB}])
def test_a_node_without_what_it_needs_is_refused(figures):
    with pytest.raises(ValueError, match="needs"):
        node(**figures)


def test_what_is_due_at_once_happens_in_order():
    agenda, happened = Agenda(), []
    for at_ns, name in ((5, "b"), (3, "a"), (5, "c")):
        agenda.at(at_ns, happened.append, name)
    agenda.at(5, lambda: agenda.at(1, happened.append, "too late, so now"))
    agenda.run()
    assert (happened, agenda.now_ns) == (["a", "b", "c", "too late, so now"], 5)
