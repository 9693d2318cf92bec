"""`kvbench sim run` and `compare`: what stands under the figures is said of these figures."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from kvbench.cli.main import app


@pytest.mark.parametrize(
    ("arguments", "footer"),
    [
        (("run", "ring", "--seed", "3"), "seed 3 alone"),
        (("compare", "ring", "--seeds", "2"), "mean over 2 seeds ± half of its 95 % interval"),
        (
            ("compare", "ring", "modulo", "--seeds", "2"),
            "mean over 2 seeds ± half of its 95 % interval; × is the ratio to the first column",
        ),
        (("compare", "ring", "modulo", "--seeds", "1"), "seed 0 alone; × is the ratio to the first column"),
    ],
)
def test_the_footer_names_an_interval_and_a_ratio_only_where_there_are_such(
    arguments: tuple[str, ...], footer: str
) -> None:
    result = CliRunner().invoke(app, ["sim", *arguments, "--workload", "retrieval", "--requests", "5"])
    assert result.exit_code == 0, result.output
    assert result.output.splitlines()[-1] == f"simulated: retrieval on site narrow; {footer}"
