#!/usr/bin/env python3
"""Serves many requests at once with a decoder whose cache is paged: they join and leave between steps.

usage: examples/llm/serve.py MODULE REQUESTS.jsonl [--batch 64] [--chunk 16]           needs kiln and numpy

A line of REQUESTS is a request, {"ids": [1, 15043], "tokens": 16, "temperature": 0.8, "top_k": 40, "top_p": 0.95, "seed": 3};
all but ids may be left out. A line of what is printed is its tokens, in the order of the requests. The module is made by
kiln.export.paged, kiln.export.with_sampling and `kiln compile --state auto` (docs/guide/language-models.md).
"""
import argparse
import collections
import dataclasses
import json
import sys

import kiln
import numpy as np


@dataclasses.dataclass
class Request:
    ids: list  # the prompt, and behind it the tokens that were made
    tokens: int = 16  # how many to make
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 0
    stop: int = -1  # a token that ends it

    def __post_init__(self):
        if not self.ids or self.tokens < 1:
            raise ValueError("request: must have ids, and tokens to make")
        self.ids, self.n_prompt = list(self.ids), len(self.ids)
        self.cached, self.blocks = 0, []  # tokens in the cache, and where
        self.random = np.random.default_rng(self.seed)

    @property
    def made(self):
        return self.ids[self.n_prompt :]

    @property
    def is_done(self):
        return len(self.ids) == self.n_prompt + self.tokens or (len(self.ids) > self.n_prompt and self.ids[-1] == self.stop)


class Server:
    """Steps of up to `batch` requests at once; prompts go in chunks of `chunk` tokens beside the steps of the others.

    A request waits until there are blocks for all its tokens, so that none that runs has to give way.
    """

    def __init__(self, module, batch=64, chunk=16):
        module = kiln.load(module) if isinstance(module, str) else module
        self.session = module.session()
        most = {dim.name: dim.most for dim in module.dims}
        pool = next(port for port in module.inputs if port.name in self.session.states)
        self.block_size, self.most_pages = pool.shape[1], most["pages"]
        self.free = list(range(pool.shape[0] - 1, 0, -1))  # block 0 is nobody's
        self.batch, self.chunk = min(batch, most["batch"]), min(chunk, most["tokens"])
        self.waiting, self.running, self.runs = collections.deque(), [], 0

    def submit(self, request):
        n = self._blocks_of(request)
        if n > min(self.most_pages, len(self.free) + sum(len(r.blocks) for r in self.running)):
            raise ValueError(f"request: must take at most {self.most_pages} blocks of the cache, takes {n}")
        self.waiting.append(request)

    def _blocks_of(self, request):
        return -(-(request.n_prompt + request.tokens - 1) // self.block_size)  # the last token is not cached

    def step(self):
        """One run for the prompts and one for the other requests. Gives those that are done."""
        while self.waiting and len(self.running) < self.batch and self._blocks_of(self.waiting[0]) <= len(self.free):
            request = self.waiting.popleft()
            request.blocks = [self.free.pop() for _ in range(self._blocks_of(request))]
            self.running.append(request)
        prompts = [r for r in self.running if len(r.ids) - r.cached > 1]
        others = [r for r in self.running if len(r.ids) - r.cached == 1]
        for rows in (prompts, others):
            if rows:
                self._run(rows)
        done = [r for r in self.running if r.is_done]
        self.running = [r for r in self.running if not r.is_done]
        for request in done:
            self.free += request.blocks
        return done

    def _run(self, rows):
        counts = [min(len(r.ids) - r.cached, self.chunk) for r in rows]
        ids = np.zeros((len(rows), max(counts)), np.int64)
        pages = max(-(-(r.cached + n) // self.block_size) for r, n in zip(rows, counts))
        table = np.zeros((len(rows), pages), np.int64)
        uniform = np.zeros((len(rows), 1), np.float32)
        for i, (request, n) in enumerate(zip(rows, counts)):
            ids[i, :n] = request.ids[request.cached : request.cached + n]
            used = request.blocks[:pages]
            table[i, : len(used)] = used
            if request.cached + n == len(request.ids):  # a token will be chosen
                uniform[i] = request.random.random(dtype=np.float32)
        tokens = self.session(
            input_ids=ids,
            lengths=np.array([r.cached for r in rows], np.int64),
            counts=np.array(counts, np.int64),
            table=table,
            temperature=np.array([r.temperature for r in rows], np.float32),
            top_k=np.array([r.top_k for r in rows], np.int64),
            top_p=np.array([r.top_p for r in rows], np.float32),
            uniform=uniform,
        )
        self.runs += 1
        for request, n, token in zip(rows, counts, tokens[:, 0]):
            request.cached += n
            if request.cached == len(request.ids):
                request.ids.append(int(token))

    def serve(self, requests):
        """Runs requests to their ends, in any order. Gives the tokens of each."""
        for request in requests:
            self.submit(request)
        while self.waiting or self.running:
            self.step()
        return [request.made for request in requests]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("requests", help="a file of JSON, a request a line; -: the standard input")
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--chunk", type=int, default=16)
    o = parser.parse_args()
    with sys.stdin if o.requests == "-" else open(o.requests) as lines:
        requests = [Request(**json.loads(line)) for line in lines if line.strip()]
    for made in Server(o.module, o.batch, o.chunk).serve(requests):
        print(" ".join(map(str, made)))


if __name__ == "__main__":
    main()
