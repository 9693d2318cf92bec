"""A comparison as a page: it says that it is simulated, and has every strategy, chart and figure."""

from kvbench.sim import site as sites
from kvbench.sim.compare import compare
from kvbench.sim.page import page
from kvbench.sim.simulate import Source, Task


def test_a_page_has_charts_figures_and_what_was_simulated():
    site = sites.load("narrow", nodes=4)
    tasks = {
        name: [Task(site, Source("retrieval", requests=10), name, seed) for seed in (0, 1)]
        for name in ("ring", "prefix+ring")
    }
    text = page(compare(tasks), tasks["ring"][0])
    assert "SIMULATED" in text
    assert text.count("<svg") == 5
    assert "2: prefix+ring" in text
    assert "ttft_p99_s" in text
    assert "4 × llama-3.1-70b on 8 × H100" in text
    assert "http" not in text.replace("http://www.w3.org", ""), "it asks for no other file"
