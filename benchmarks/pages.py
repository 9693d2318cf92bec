"""The page driver's reads against fio's io_uring: 20 pairs at 2 and 16 MiB and queue depths 1, 8 and 32, in turn.

Exit code 1 when the geometric mean over all pairs is below 0.97, an interval lies wholly below it, or processor time
per byte is above 1.2 times fio's. fio against itself, printed beside, is the noise of the machine. About 360 runs of
1 GiB each: at 1 GB/s some ten minutes. Run it on a quiet machine:  .venv/bin/python benchmarks/pages.py DIR
"""

from __future__ import annotations

import sys

from kvbench.cli.main import main

if __name__ == "__main__":
    sys.argv = ["kvbench", "store", "bench", *sys.argv[1:]]
    main()
