#!/usr/bin/env python3
"""Fits the price of kernels on GPUs (src/price/gpu_price.c) to measured times, and says how well prices order a kernel's candidates.

usage: bench/fit_price.py [--report] [--data FILE...] [--keep FILE] [--write]

FILE are what bench/gpu_sweep.py --candidates --json wrote, or what --keep did (default: bench/data/gpu_candidates_*.jsonl.xz): a
line a kernel, with the counts of each candidate's loops and its time, and the card's figures in the first line. --report only
judges the prices that are in the file; --keep writes what the fit needs, compressed; --write puts the coefficients into
src/price/gpu_fit.h.

The fit is of logarithms of times, by damped least squares with a soft limit for outliers. Within a kernel, mean errors are taken
off, so that the order counts; candidates near the best count more. Three times, each with another third of the kernels left
out, it is judged on what was left out; then all are fitted.

Rank correlation is Spearman's within a kernel, of kernels with at least five measured candidates whose slowest takes at least
1.1 times the fastest. Regret is the measured time of the candidate with the least price over the least measured one, less 1.
`proposed`: the templates' own prices; `price`: that of the loops; `both`: their geometric mean, which chooses (src/template/search.c).
"""
import argparse
import json
import lzma
import math
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FEWEST, LEAST_SPREAD, HOPELESS = 5, 1.1, 15
UNITS = ("issue", "special", "mma", "wgmma", "shared", "lines", "l2")
WAITS = ("issue", "mma", "shared", "global", "ahead", "barrier", "group", "sum")
# where the fit begins, and what it stays near where data say little
PRIOR = {"unit_issue": 1, "unit_special": 1, "unit_mma": 1.1, "unit_wgmma": 1.2, "unit_shared": 1, "unit_lines": 0.6, "unit_l2": 1,
         "wait_issue": 1, "wait_mma": 1, "wait_shared": 1, "wait_global": 1.2, "wait_ahead": 1, "wait_barrier": 1, "wait_group": 100,
         "wait_sum": 1, "block": 1000, "cluster": 300, "l2": 1, "memory": 1, "code": 0.2, "starts": 0.5, "nest": 700,
         "begin": 500, "p": 3, "q": 4}
NAMES = list(PRIOR)


# --- judging ---

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
    """(rank correlation or None, regret, chosen template) of one kernel; None if nothing is known."""
    known = [(c["us"], price(c), c["template"]) for c in kernel.get("candidates", []) if c.get("us") and price(c) is not None]
    if len(known) < 2:
        return None
    times, prices, _ = zip(*known)
    chosen = min(known, key=lambda k: k[1])
    rho = spearman(times, prices) if len(known) >= FEWEST and max(times) >= LEAST_SPREAD * min(times) else None
    return rho, chosen[0] / min(times) - 1, chosen[2]


def summary(rows):
    rhos, regrets = [r for r, _, _ in rows if r is not None], [x for _, x, _ in rows]
    mean = sum(rhos) / len(rhos) if rhos else math.nan
    return (f"{len(rows):4} kernels, rank correlation {mean:5.2f} of {len(rhos)}, regret {100 * sum(regrets) / len(regrets):5.1f} % mean, "
            f"{100 * percentile(regrets, 0.5):5.1f} % median, {100 * percentile(regrets, 0.95):6.1f} % 95th")


def report(kernels, prices, by_template=True):
    measured = [k for k in kernels if sum(1 for c in k.get("candidates", []) if c.get("us")) > 1]
    print(f"{len(measured)} kernels, {sum(1 for k in measured for c in k['candidates'] if c.get('us'))} candidates measured")
    for name, price in prices.items():
        judged = [(k, j) for k in measured if (j := judge(k, price))]
        if not judged:
            continue
        print(f"{name:10} all                       {summary([j for _, j in judged])}")
        for kind in sorted({k.get("kind", "") for k, _ in judged}):
            print(f"{name:10} {kind:25} {summary([j for k, j in judged if k.get('kind', '') == kind])}")
        for template in sorted({c["template"] for k in measured for c in k["candidates"]}) if by_template else ():
            taken = [j for _, j in judged if j[2] == template]
            own = [judge({"candidates": [c for c in k["candidates"] if c["template"] == template]}, price) for k in measured]
            own = [j for j in own if j]
            if taken:
                print(f"{name:10} where it takes {template:15}{summary(taken)}")
            if own:
                print(f"{name:10} within {template:18} {summary(own)}")


PRICES = {"proposed": lambda c: c.get("proposed_us"), "price": lambda c: c.get("price_us"),
          "both": lambda c: math.sqrt(c["proposed_us"] * c["price_us"]) if c.get("proposed_us") and c.get("price_us") else None}


# --- data ---

def read(paths):
    """(the card's figures or None, kernels)."""
    card, kernels = None, []
    for path in paths:
        with (lzma.open(path, "rt") if str(path).endswith(".xz") else open(path)) as f:
            for line in f:
                row = json.loads(line)
                if "card" in row:
                    card = row["card"]
                elif "candidates" in row:
                    kernels.append(row)
    return card, kernels


def keep(path, card, kernels):
    """Measured candidates, and of these what the fit reads."""
    fields = ("template", "variant", "form", "proposed_us", "price_us", "us", "registers", "nests")
    with lzma.open(path, "wt") as f:
        f.write(json.dumps({"card": card}) + "\n")
        for k in kernels:
            row = {n: k[n] for n in ("case", "kind", "kernel", "flops", "bytes")}
            row["candidates"] = [{n: c[n] for n in fields if n in c and c[n] != ""} for c in k["candidates"] if c.get("us")]
            if len(row["candidates"]) > 1:
                f.write(json.dumps(row, separators=(",", ":")) + "\n")


class Data:
    """The nests of all candidates that are not hopeless, as arrays."""

    def __init__(self, kernels):
        import numpy as np
        rows, self.candidates, of, kernel = [], [], [], []
        for number, k in enumerate(kernels):
            known = [c for c in k["candidates"] if c.get("us") and c.get("nests")]
            for c in known:
                if c["us"] > HOPELESS * min(x["us"] for x in known):
                    continue
                for n in c["nests"]:
                    rows.append([n[x] for x in ("blocks", "resident", "l2_bytes", "memory_bytes", "code", "cluster")]
                                + n["unit"] + n["wait"])
                    of.append(len(self.candidates))
                self.candidates.append(c)
                kernel.append(number)
        self.rows, self.of, self.kernel = np.array(rows), np.array(of), np.array(kernel)
        self.us = np.array([c["us"] for c in self.candidates])


# --- the price, as in src/price/gpu_price.c ---

def predict(theta, data, card):
    """Microseconds of all candidates."""
    import numpy as np
    t, units, g = dict(zip(NAMES, np.exp(theta))), card["cores"], card["gpu"]
    blocks, resident, l2_bytes, memory_bytes, code, cluster = data.rows[:, :6].T
    unit = data.rows[:, 6:6 + len(UNITS)] * np.array([t[f"unit_{k}"] for k in UNITS])
    wait = data.rows[:, 6 + len(UNITS):] @ np.array([t[f"wait_{k}"] for k in WAITS])
    p, q = 1 + t["p"], 1 + t["q"]
    each = np.where(blocks > 8 * units, blocks / units, np.ceil(blocks / units))
    alone = wait + t["block"] + t["cluster"] * np.log2(np.maximum(cluster, 1))

    def round_of(r):
        return (alone ** p + ((unit * r[:, None]) ** p).sum(1)) ** (1 / p)
    r = np.minimum(resident, np.maximum(1, each))
    full = np.floor(each / r)
    rest = each - full * r
    clocks = np.where(each > 3 * r, each / r * round_of(r),
                      full * round_of(r) + np.where(rest > 1e-9, round_of(np.maximum(rest, 1)), 0))
    l2 = t["l2"] * l2_bytes / (units * g["l2_each_of_all_bytes_clock"])
    memory = t["memory"] * memory_bytes / (units * g["memory_each_of_all_bytes_clock"])
    clocks = (clocks ** q + l2 ** q + memory ** q) ** (1 / q) + t["nest"] + t["code"] * code
    clocks += t["starts"] * g["block_ns"] * g["clock_ghz"] * blocks / units
    return (np.bincount(data.of, clocks, len(data.us)) + t["begin"]) / g["clock_ghz"] / 1e3


# --- the fit ---

def fit(data, card, rounds=60):
    """The logarithms of the coefficients."""
    import numpy as np
    prior = np.log([PRIOR[k] for k in NAMES])
    best = np.full(data.kernel.max() + 1, np.inf)
    np.minimum.at(best, data.kernel, data.us)
    count = np.bincount(data.kernel)
    weight = np.sqrt(8 / count[data.kernel]) / np.sqrt(1 + (np.log(data.us / best[data.kernel]) / 0.5) ** 2)
    weight[count[data.kernel] < 2] = 0
    shares = np.maximum(np.bincount(data.kernel, weight ** 2), 1e-9)
    of_time, of_prior, limit = 0.3, 0.15, 0.6

    def errors(theta):
        e = np.log(predict(theta, data, card)) - np.log(data.us)
        within = e - (np.bincount(data.kernel, weight ** 2 * e) / shares)[data.kernel]
        all_ = np.concatenate([weight * within, of_time * weight * e, of_prior * (theta - prior)])
        return np.sign(all_) * np.where(np.abs(all_) > limit, np.sqrt(np.maximum(2 * limit * np.abs(all_) - limit ** 2, 0)), np.abs(all_))
    theta, damping = prior.copy(), 1e-2
    f = errors(theta)
    for _ in range(rounds):
        slopes = np.stack([(errors(theta + 1e-4 * row) - f) / 1e-4 for row in np.eye(len(theta))], 1)
        a, b = slopes.T @ slopes, slopes.T @ f
        for _ in range(8):
            step = np.clip(np.linalg.solve(a + damping * np.diag(np.diag(a) + 1e-6), -b), -0.7, 0.7)
            g = errors(theta + step)
            if g @ g < f @ f:
                break
            damping *= 4
        else:
            break
        gain = 1 - (g @ g) / (f @ f)
        theta, f, damping = theta + step, g, max(damping / 3, 1e-6)
        if gain < 1e-5:
            break
    return theta


def text_of(theta, card, n):
    t = {k: f"{math.exp(v):.4g}" for k, v in zip(NAMES, theta)}
    return f"""// Coefficients of the price (price/gpu_price.h): a fit to {n} candidates measured on an
// {card["processor"]}, by bench/fit_price.py --write.
#ifndef KILN_PRICE_GPU_FIT_H
#define KILN_PRICE_GPU_FIT_H

#include "price/gpu_loops.h"

static const struct {{
  double unit[KILN_N_GPU_UNITS], wait[KILN_N_GPU_WAITS]; // of each unit, of each wait
  double block, cluster; // clocks of a block's begin and end; of doubling a cluster
  double l2, memory;     // of the chip's levels
  double starts;         // of blocks, one behind the other
  double code, nest, begin; // clocks of an instruction's first fetch, a nest, a kernel
  double p, q;              // norms, less 1
}} FIT = {{
    .unit = {{{", ".join(t[f"unit_{k}"] for k in UNITS)}}},
    .wait = {{{", ".join(t[f"wait_{k}"] for k in WAITS)}}},
    .block = {t["block"]},
    .cluster = {t["cluster"]},
    .l2 = {t["l2"]},
    .memory = {t["memory"]},
    .starts = {t["starts"]},
    .code = {t["code"]},
    .nest = {t["nest"]},
    .begin = {t["begin"]},
    .p = {t["p"]},
    .q = {t["q"]},
}};

#endif
"""


def put_prices(theta, data, card):
    for c, us in zip(data.candidates, predict(theta, data, card)):
        c["price_us"] = float(us)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--data", nargs="+", type=pathlib.Path)
    p.add_argument("--card", type=pathlib.Path, help="its figures, as `kiln device --json` writes them, where no file has them")
    p.add_argument("--report", action="store_true")
    p.add_argument("--keep", type=pathlib.Path)
    p.add_argument("--write", action="store_true")
    o = p.parse_args()
    card, kernels = read(o.data or sorted((ROOT / "bench/data").glob("gpu_candidates_*.jsonl.xz")))
    if o.card:
        card = json.loads(o.card.read_text())
    if o.report:
        return report(kernels, PRICES)
    if o.keep:
        keep(o.keep, card, kernels)
    for third in range(3):
        theta = fit(Data([k for i, k in enumerate(kernels) if i % 3 != third]), card)
        put_prices(theta, Data([k for i, k in enumerate(kernels) if i % 3 == third]), card)
    print("prices of coefficients that were fitted to other kernels:")
    report(kernels, PRICES, by_template=False)
    data = Data(kernels)
    theta = fit(data, card)
    print({k: float(f"{math.exp(v):.4g}") for k, v in zip(NAMES, theta)})
    put_prices(theta, data, card)
    print("prices of coefficients that were fitted to all:")
    report(kernels, PRICES)
    if o.write:
        (ROOT / "src/price/gpu_fit.h").write_text(text_of(theta, card, len(data.us)))
    return None


if __name__ == "__main__":
    sys.exit(main())
