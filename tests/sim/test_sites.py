"""Every site that comes with kvbench can be read, and its model serves on its accelerators."""

import pytest

from kvbench import content
from kvbench.sim import site


@pytest.mark.parametrize(
    "name", [path.stem for path in sorted((content.content_root() / "workloads" / "sim").glob("*.yaml"))]
)
def test_a_site_of_ours_loads_under_its_own_name(name):
    loaded = site.load(name)
    assert loaded.id == name
    assert loaded.cost().kv_budget_bytes() > 0
