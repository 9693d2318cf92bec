"""Every site that comes with kvbench can be read, and its model serves on its accelerators."""

import pytest

from kvbench import content
from kvbench.errors import UsageError
from kvbench.sim import site


@pytest.mark.parametrize(
    "name", [path.stem for path in sorted((content.content_root() / "workloads" / "sim").glob("*.yaml"))]
)
def test_a_site_of_ours_loads_under_its_own_name(name):
    loaded = site.load(name)
    assert loaded.id == name
    assert loaded.cost().kv_budget_bytes() > 0


@pytest.mark.parametrize("layer", ["heat", "lfu", "s3-fifo", "prefetch", "device", "apart", "guarded"])
def test_a_layer_that_would_show_nothing_is_refused_with_a_site_where_it_does(layer):
    with pytest.raises(UsageError) as refused:
        site.load("narrow").refuse(f"ring+{layer}")
    site.load(refused.value.hint.split()[-1]).refuse(f"ring+{layer}")
