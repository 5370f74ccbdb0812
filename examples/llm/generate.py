#!/usr/bin/env python3
"""Generates text with a decoder whose cache of keys and values the session keeps.

usage: examples/llm/generate.py MODULE --tokenizer tokenizer.json "Once upon a time"      needs kiln, numpy and tokenizers
       examples/llm/generate.py MODULE --ids 1 15043 3186                                 without a tokenizer

The module comes from `python -m kiln.export` and `kiln compile --state auto` (docs/guide/language-models.md).
"""
import argparse

import kiln
import numpy as np


class Decoder:
    """A module's session, one sequence."""

    def __init__(self, path):
        self.module = kiln.load(path)
        self.session = self.module.session()
        self.length = 0  # tokens in the cache

    def step(self, tokens):
        """Runs tokens behind those in the cache. Gives the logits of the next one."""
        n = len(tokens)
        known = {
            "input_ids": np.array([tokens], np.int64),
            "attention_mask": np.ones((1, self.length + n), np.int64),
            "position_ids": np.arange(self.length, self.length + n, dtype=np.int64)[None],
        }
        given = {port.name: known[port.name] for port in self.session.inputs}
        results = self.session(**given)
        self.length += n
        return (results[0] if isinstance(results, tuple) else results)[0, -1]

    def generate(self, prompt, n, chunk=512, temperature=0.0, top=40, seed=0):
        rng = np.random.default_rng(seed)
        for at in range(0, len(prompt), chunk):
            logits = self.step(prompt[at : at + chunk])
        for i in range(n):
            token = choose(logits, temperature, top, rng)
            yield token
            if i + 1 < n:
                logits = self.step([token])


def choose(logits, temperature, top, rng):
    """The likeliest token, or one of the likeliest by their probabilities."""
    if temperature <= 0:
        return int(logits.argmax())
    kept = np.argsort(-logits)[:top]
    weights = np.exp((logits[kept] - logits[kept[0]]).astype(np.float64) / temperature)
    return int(rng.choice(kept, p=weights / weights.sum()))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("module")
    parser.add_argument("text", nargs="?")
    parser.add_argument("--tokenizer")
    parser.add_argument("--ids", type=int, nargs="+")
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--chunk", type=int, default=512)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--top", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    o = parser.parse_args()
    if (o.text is None) == (o.ids is None) or (o.text is not None and not o.tokenizer):
        parser.error("give a text and --tokenizer, or --ids")
    tokenizer = None
    if o.tokenizer:
        import tokenizers

        tokenizer = tokenizers.Tokenizer.from_file(o.tokenizer)
    prompt = o.ids or tokenizer.encode(o.text).ids
    new = list(Decoder(o.module).generate(prompt, o.tokens, o.chunk, o.temperature, o.top, o.seed))
    print(tokenizer.decode(prompt + new) if tokenizer else " ".join(map(str, new)))


if __name__ == "__main__":
    main()
