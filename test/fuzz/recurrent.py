"""LSTM, GRU and RNN with their default activations, in double: ONNX Runtime's own activations cut off their argument, and lose a NaN."""
import numpy as np


def sigmoid(x):
    e = np.exp(-np.abs(x))
    return np.where(x >= 0, 1, e) / (1 + e)


def lstm(gates, w, r, bias, state, attrs):
    h, c = state
    i, o, f, g = np.split(gates + h @ r.T + bias[1], 4, -1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru(gates, w, r, bias, state, attrs):
    h = state[0]
    xz, xr, xh = np.split(gates, 3, -1)
    rz, rr, rh = np.split(r, 3)
    bz, br, bh = np.split(bias[1], 3)
    z, reset = sigmoid(xz + h @ rz.T + bz), sigmoid(xr + h @ rr.T + br)
    new = np.tanh(xh + (reset * (h @ rh.T + bh) if attrs.get("linear_before_reset") else (reset * h) @ rh.T + bh))
    return ((1 - z) * new + z * h,)


def rnn(gates, w, r, bias, state, attrs):
    return (np.tanh(gates + state[0] @ r.T + bias[1]),)


CELLS = {"LSTM": (lstm, 2), "GRU": (gru, 1), "RNN": (rnn, 1)}


def one_way(op, x, w, r, b, attrs, is_reverse):
    """All steps' results and the last state, of one direction."""
    cell, n_states = CELLS[op]
    bias = np.split(b, 2)
    state, found = (np.zeros((x.shape[1], r.shape[1])),) * n_states, []
    for step in x[::-1] if is_reverse else x:
        state = cell(step @ w.T + bias[0], w, r, bias, state, attrs)
        found.append(state[0])
    return np.stack(found[::-1] if is_reverse else found), state


def recurrent(op, xs, attrs):
    """The outputs, of which ONNX may want fewer; None: with operands or attributes that are not tried."""
    known = {"hidden_size", "direction", "linear_before_reset"}
    if op not in CELLS or len(xs) > 4 or set(attrs) - known or not xs[0].size:
        return None
    x, w, r = (a.astype(np.float64) for a in xs[:3])
    b = xs[3].astype(np.float64) if len(xs) > 3 and xs[3] is not None else np.zeros((w.shape[0], 2 * w.shape[1]))
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}[attrs.get("direction", "forward")]
    runs = [one_way(op, x, w[k], r[k], b[k], attrs, way) for k, way in enumerate(ways)]
    ys = [np.stack([y for y, _ in runs], 1)] + [np.stack(s) for s in zip(*[state for _, state in runs])]
    return [y.astype(xs[0].dtype) for y in ys]
