#!/usr/bin/env python3
"""Fits the price of kernels on GPUs to measured times, and says how well prices order a kernel's candidates.

usage: bench/fit_price.py --report FILE.jsonl...     files of bench/gpu_sweep.py --candidates --json

Rank correlation is Spearman's within a kernel, of kernels with at least five measured candidates whose slowest takes at least
1.1 times the fastest. Regret is the measured time of the candidate with the least price over the least measured one, less 1.
"""
import argparse
import json
import math
import sys

FEWEST, LEAST_SPREAD = 5, 1.1


def ranks(values):
    order, out = sorted(range(len(values)), key=values.__getitem__), [0.0] * len(values)
    at = 0
    while at < len(order):
        end = at
        while end + 1 < len(order) and values[order[end + 1]] == values[order[at]]:
            end += 1
        for i in range(at, end + 1):
            out[order[i]] = (at + end) / 2
        at = end + 1
    return out


def spearman(a, b):
    x, y = ranks(a), ranks(b)
    mean = (len(a) - 1) / 2
    xy = sum((p - mean) * (q - mean) for p, q in zip(x, y))
    xx, yy = sum((p - mean) ** 2 for p in x), sum((q - mean) ** 2 for q in y)
    return xy / math.sqrt(xx * yy) if xx > 0 and yy > 0 else 0.0


def percentile(values, share):
    values = sorted(values)
    return values[min(len(values) - 1, int(share * len(values)))] if values else math.nan


def judge(kernel, price):
    """(rank correlation or None, regret) of one kernel, and its chosen template; None if nothing is known."""
    known = [(c["us"], price(c), c["template"]) for c in kernel.get("candidates", []) if c.get("us") and price(c) is not None]
    if len(known) < 2:
        return None
    times, prices, _ = zip(*known)
    chosen = min(known, key=lambda k: k[1])
    spread = max(times) / min(times)
    rho = spearman(times, prices) if len(known) >= FEWEST and spread >= LEAST_SPREAD else None
    return rho, chosen[0] / min(times) - 1, chosen[2]


def summary(rows):
    rhos, regrets = [r for r, _, _ in rows if r is not None], [x for _, x, _ in rows]
    mean = sum(rhos) / len(rhos) if rhos else math.nan
    return (f"{len(rows):4} kernels, rank correlation {mean:5.2f} of {len(rhos)}, regret {100 * percentile(regrets, 0.5):5.1f} % median, "
            f"{100 * percentile(regrets, 0.95):6.1f} % 95th")


def report(kernels, prices):
    measured = [k for k in kernels if sum(1 for c in k.get("candidates", []) if c.get("us")) > 1]
    print(f"{len(measured)} kernels, {sum(1 for k in measured for c in k['candidates'] if c.get('us'))} candidates measured")
    for name, price in prices.items():
        judged = [(k, j) for k in measured if (j := judge(k, price))]
        print(f"{name:10} all          {summary([j for _, j in judged])}")
        for kind in sorted({k.get("kind", "") for k, _ in judged}):
            print(f"{name:10} {kind:12} {summary([j for k, j in judged if k.get('kind', '') == kind])}")
        for template in sorted({j[2] for _, j in judged}):
            print(f"{name:10} takes {template:18} {summary([j for _, j in judged if j[2] == template])}")
        for template in sorted({c["template"] for k in measured for c in k["candidates"]}):
            own = [judge({"candidates": [c for c in k["candidates"] if c["template"] == template]}, price) for k in measured]
            own = [j for j in own if j]
            if own:
                print(f"{name:10} within {template:17} {summary(own)}")


def read(paths):
    return [json.loads(line) for path in paths for line in open(path)]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--report", nargs="+", required=True)
    o = p.parse_args()
    report(read(o.report), {"proposed": lambda c: c.get("proposed_us"), "loops": lambda c: c.get("loops_us")})


if __name__ == "__main__":
    sys.exit(main())
