#!/usr/bin/env python3
"""Generates text with a decoder whose cache of keys and values the session keeps.

usage: examples/llm/generate.py MODULE --tokenizer tokenizer.json "Once upon a time"      needs kiln, numpy and tokenizers
       examples/llm/generate.py MODULE --ids 1 15043 3186                                 without a tokenizer

With --draft N a step takes up to N more tokens, those that followed the last two where these stood before, and keeps the ones
that it would have chosen itself: the tokens are the same, in fewer steps where text repeats.

The module comes from `python -m kiln.export` and `kiln compile --state auto` (docs/guide/language-models.md).
"""
import argparse
import sys

import kiln
import numpy as np


class Decoder:
    """A module's session, one sequence."""

    def __init__(self, path):
        self.module = kiln.load(path)
        self.session = self.module.session()
        self.length = 0  # tokens in the cache
        self.steps = 0

    def step(self, tokens):
        """Runs tokens behind those in the cache. Gives the logits behind each."""
        n = len(tokens)
        known = {
            "input_ids": np.array([tokens], np.int64),
            "attention_mask": np.ones((1, self.length + n), np.int64),
            "position_ids": np.arange(self.length, self.length + n, dtype=np.int64)[None],
        }
        given = {port.name: known[port.name] for port in self.session.inputs}
        results = self.session(**given)
        self.length += n
        self.steps += 1
        return (results[0] if isinstance(results, tuple) else results)[0]

    def generate(self, prompt, n, chunk=512, temperature=0.0, top=40, seed=0, draft=0):
        rng, tokens, guess = np.random.default_rng(seed), list(prompt), []
        for at in range(0, len(prompt), chunk):
            logits = self.step(prompt[at : at + chunk])[-1:]
        end = len(prompt) + n
        while True:
            for i, row in enumerate(logits):
                tokens.append(choose(row, temperature, top, rng))
                yield tokens[-1]
                if len(tokens) == end:
                    return
                if i < len(guess) and guess[i] != tokens[-1]:
                    break
            if self.length >= len(tokens):  # guessed tokens that were not chosen
                self.session.truncate(len(tokens) - 1)
                self.length = len(tokens) - 1
            guess = guessed(tokens, min(draft, end - len(tokens) - 1))
            logits = self.step([tokens[-1], *guess])


def guessed(tokens, n):
    """At most n tokens that followed the last two when these stood there before."""
    for at in range(len(tokens) - 3, -1, -1) if n > 0 else ():
        if tokens[at : at + 2] == tokens[-2:]:
            return tokens[at + 2 : at + 2 + n]
    return []


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
    parser.add_argument("--draft", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="says how many steps there were")
    o = parser.parse_args()
    if (o.text is None) == (o.ids is None) or (o.text is not None and not o.tokenizer):
        parser.error("give a text and --tokenizer, or --ids")
    tokenizer = None
    if o.tokenizer:
        import tokenizers

        tokenizer = tokenizers.Tokenizer.from_file(o.tokenizer)
    prompt = o.ids or tokenizer.encode(o.text).ids
    decoder = Decoder(o.module)
    new = list(decoder.generate(prompt, o.tokens, o.chunk, o.temperature, o.top, o.seed, o.draft))
    if o.verbose:
        print(f"{len(new)} tokens, {decoder.steps} steps", file=sys.stderr)
    print(tokenizer.decode(prompt + new) if tokenizer else " ".join(map(str, new)))


if __name__ == "__main__":
    main()
