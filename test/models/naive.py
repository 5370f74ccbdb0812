#!/usr/bin/env python3
"""Compares operators that search, sort, count, scatter and sample with a second evaluation of each, an element at a time, on
random data, ties, NaN, infinities, zeros of both signs, and odd, unit and empty shapes; and the interpreter with both.

usage: naive.py KILN [PATTERN [OPTION...]]      in the Python environment of `make test`; one of KILN_TEST_SHARE cases without a pattern
"""
import fnmatch
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).parents[1]))
import share  # noqa: E402

try:
    import ml_dtypes  # noqa: F401
    import numpy  # noqa: F401
    import onnx  # noqa: F401
except ImportError as missing:
    print("skipped:", missing)
    sys.exit(77)

import batch
import naive_order
import naive_places
import naive_samples
from naive_data import CASES


def main():
    kiln, pattern, options = sys.argv[1], sys.argv[2:3], sys.argv[3:] or ["--threads", "2", "--reference"]
    naive_order.define()
    naive_places.define()
    naive_samples.define()
    chosen = [c for c in CASES if fnmatch.fnmatch(c.name, pattern[0])] if pattern else share.some(CASES)
    return batch.report(batch.run(kiln, chosen, *options), len(chosen))


if __name__ == "__main__":
    sys.exit(main())
