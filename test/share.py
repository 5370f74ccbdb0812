"""How much a suite runs of many cases that are alike, as test/unit/share.h: one in six, all of them where KILN_TEST_SHARE is 1."""
import os


def takes(i):
    """Whether case i is run: the first is, and of the others those that a hash takes, whatever order they have."""
    share = max(int(os.environ.get("KILN_TEST_SHARE", "6")), 1)
    x = i * 0x9E3779B97F4A7C15 % 2**64
    x ^= x >> 32
    return i == 0 or (x * 0xFF51AFD7ED558CCD % 2**64 >> 33) % share == 0


def some(cases):
    return [c for i, c in enumerate(cases) if takes(i)]
