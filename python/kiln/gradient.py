# SPDX-License-Identifier: Apache-2.0
"""Reverse-mode derivatives of definitions, as definitions.

Every load X(e...) of a statement Y(i...) op= body contributes dY(i...) times the body's derivative by
the load to dX. This contribution is a statement over X's elements: an index that is a whole subscript
becomes the axis; an affine subscript is solved for an index, `h + kh = p` for `h = p - kh`; the
remaining indices are summed over. So the derivative of

    O(n, m, h) +=! I(n, c, h + k) * K(m, c, k)      by I is
    d_I(n, c, p) +=! 0 <= p - k && p - k < d_O.d2 ? d_O(n, m, p - k) * K(m, c, k) : 0
"""

from __future__ import annotations

import re
from typing import NamedTuple, Optional

from .errors import Unsupported

_TOKEN = re.compile(
    r"\s+|#[^\n]*|(?P<assign>\b(?:min|max)=!?(?!=))|(?P<num>(?:\d+\.\d*|\.\d+|\d+)(?:[eE][-+]?\d+)?)|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<op>\.\.\.|->|[+*]=!?|\|\||&&|[=!<>]=|[-+*/%<>=!?:(){},.])"
)
_TYPES = {
    "bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "bfloat16", "float",
    "float32", "float64", "double",
}  # fmt: skip
_FLOATS = {"float16", "bfloat16", "float", "float32", "float64", "double"}
_LEVELS = [["||"], ["&&"], ["==", "!="], ["<", "<=", ">", ">="], ["+", "-"], ["*", "/", "%"]]


class Num(NamedTuple):
    text: str


class Name(NamedTuple):
    id: str


class Dim(NamedTuple):
    tensor: str
    axis: int


class Call(NamedTuple):  # of a function, a load of a tensor
    name: str
    args: tuple


class Un(NamedTuple):
    op: str
    arg: object


class Bin(NamedTuple):
    op: str
    a: object
    b: object


class Sel(NamedTuple):
    cond: object
    a: object
    b: object


class Param(NamedTuple):
    type: str
    dims: tuple  # texts
    name: str


class Stmt(NamedTuple):
    target: str
    index: tuple
    op: str
    body: object
    where: tuple  # (name, low, high)


class Definition(NamedTuple):
    name: str
    params: tuple
    outs: tuple
    stmts: tuple


ZERO, ONE = Num("0"), Num("1")


def refuse(why: str):
    raise Unsupported(f"gradient: {why}; give one as grad=")


# --- reading ---


class Reader:
    def __init__(self, text: str):
        self.tokens: list[str] = []
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if not found:
                refuse(f"cannot read {text[at : at + 10]!r}")
            if found.lastgroup:
                self.tokens.append(found.group())
            at = found.end()
        self.at = 0

    def peek(self, ahead=0) -> str:
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def take(self, want: Optional[str] = None) -> str:
        token = self.peek()
        if want is not None and token != want:
            refuse(f"wants {want!r}, got {token!r}")
        self.at += 1
        return token

    def has(self, token: str) -> bool:
        if self.peek() != token:
            return False
        self.at += 1
        return True

    def list(self, one, end: str) -> tuple:
        out = []
        while not self.has(end):
            out.append(one())
            if not self.has(","):
                self.take(end)
                break
        return tuple(out)

    def exp(self):
        cond = self.level(0)
        if not self.has("?"):
            return cond
        a = self.exp()
        self.take(":")
        return Sel(cond, a, self.exp())

    def level(self, k: int):
        if k == len(_LEVELS):
            return self.unary()
        a = self.level(k + 1)
        while self.peek() in _LEVELS[k]:
            op = self.take()
            a = Bin(op, a, self.level(k + 1))
        return a

    def unary(self):
        if self.peek() in ("-", "!"):
            return Un(self.take(), self.unary())
        return self.primary()

    def primary(self):
        token = self.take()
        if token == "(":
            e = self.exp()
            self.take(")")
            return e
        if re.match(r"[\d.]", token):
            return Num(token)
        if not re.match(r"[A-Za-z_]", token):
            refuse(f"cannot read {token!r}")
        if self.has("("):
            return Call(token, self.list(self.exp, ")"))
        if self.has("."):
            return Dim(token, int(self.take().lstrip("d")))
        if self.peek() == "...":
            refuse("it has packs")
        return Name(token)

    def dims(self) -> tuple:
        return self.list(lambda: show(self.exp()), ")") if self.has("(") else ()

    def param(self) -> Param:
        kind = self.take()
        if kind not in _TYPES:
            refuse(f"a parameter is of type {kind}")
        dims = self.dims()
        return Param(kind, dims, self.take())

    def out(self) -> str:
        if self.peek() in _TYPES:
            self.take()
            self.dims()
        return self.take()

    def clause(self):
        name = self.take()
        self.take("in")
        low = self.exp()
        self.take(":")
        return name, low, self.exp()

    def stmt(self) -> Stmt:
        target = self.take()
        index = self.list(self.exp, ")") if self.has("(") else ()
        op = self.take()
        if op not in ("=", "+=!", "max=!", "min=!"):
            refuse(f"{target} is written by {op!r}")
        body, where = self.exp(), []
        if self.has("where"):
            where.append(self.clause())
            while self.has(","):
                where.append(self.clause())
        return Stmt(target, index, op, body, tuple(where))

    def definition(self) -> Definition:
        self.take("def")
        name = self.take()
        self.take("(")
        params = self.list(self.param, ")")
        self.take("->")
        self.take("(")
        outs = self.list(self.out, ")")
        self.take("{")
        stmts = []
        while not self.has("}"):
            stmts.append(self.stmt())
        return Definition(name, params, outs, tuple(stmts))


def read(text: str, entry: Optional[str] = None) -> Definition:
    """The definition |entry| of a text, or the last."""
    reader, found = Reader(text), None
    while reader.peek():
        d = reader.definition()
        if entry is None or d.name == entry:
            found = d
    if found is None:
        refuse(f"there is no definition {entry}")
    return found


# --- writing ---


def show(e) -> str:
    if isinstance(e, Num):
        return e.text
    if isinstance(e, Name):
        return e.id
    if isinstance(e, Dim):
        return f"{e.tensor}.d{e.axis}"
    if isinstance(e, Call):
        return f"{e.name}({', '.join(show(a) for a in e.args)})"
    if isinstance(e, Un):
        return f"({e.op}{show(e.arg)})"
    if isinstance(e, Sel):
        return f"({show(e.cond)} ? {show(e.a)} : {show(e.b)})"
    return f"({show(e.a)} {e.op} {show(e.b)})"


def show_stmt(target, index, op, body, where=()) -> str:
    left = f"{target}({', '.join(index)})" if index else target
    ranges = ", ".join(f"{v} in {show(low)}:{show(high)}" for v, low, high in where)
    return f"  {left} {op} {show(body)}" + (f" where {ranges}" if ranges else "")


# --- algebra ---


def add(a, b):
    return b if a == ZERO else a if b == ZERO else Bin("+", a, b)


def sub(a, b):
    return a if b == ZERO else Bin("-", a, b)


def mul(a, b):
    return b if a == ONE else a if b == ONE else Bin("*", a, b)


def neg(a):
    return Un("-", a)


def both(conditions):
    out = conditions[0]
    for c in conditions[1:]:
        out = Bin("&&", out, c)
    return out


def children(e):
    if isinstance(e, Call):
        return e.args
    if isinstance(e, Un):
        return (e.arg,)
    if isinstance(e, Bin):
        return (e.a, e.b)
    return (e.cond, e.a, e.b) if isinstance(e, Sel) else ()


def replace(e, name: str, by):
    if isinstance(e, Name):
        return by if e.id == name else e
    if isinstance(e, Call):
        return Call(e.name, tuple(replace(a, name, by) for a in e.args))
    if isinstance(e, Un):
        return Un(e.op, replace(e.arg, name, by))
    if isinstance(e, Bin):
        return Bin(e.op, replace(e.a, name, by), replace(e.b, name, by))
    if isinstance(e, Sel):
        return Sel(*(replace(x, name, by) for x in e))
    return e


def affine(e, variables) -> Optional[dict]:
    """{index: coefficient, "": the rest as an expression}; None where it is not affine in them."""
    if isinstance(e, Name) and e.id in variables:
        return {e.id: 1, "": ZERO}
    if not names(e) & variables and not isinstance(e, Sel):
        return {"": e}
    if isinstance(e, Un) and e.op == "-":
        a = affine(e.arg, variables)
        return a and {k: (neg(v) if k == "" else -v) for k, v in a.items()}
    if isinstance(e, Bin) and e.op in "+-":
        a, b = affine(e.a, variables), affine(e.b, variables)
        if a is None or b is None:
            return None
        sign = 1 if e.op == "+" else -1
        out = {k: a.get(k, 0) + sign * b.get(k, 0) for k in {*a, *b} if k}
        out[""] = add(a[""], b[""]) if sign > 0 else sub(a[""], b[""])
        return {k: v for k, v in out.items() if k == "" or v}
    if isinstance(e, Bin) and e.op == "*":
        for number, other in ((e.a, e.b), (e.b, e.a)):
            if isinstance(number, Num) and number.text.isdigit():
                a, n = affine(other, variables), int(number.text)
                return a and {k: (mul(number, v) if k == "" and v != ZERO else v if k == "" else n * v) for k, v in a.items()}
    return None


def names(e) -> set:
    out = {e.id} if isinstance(e, Name) else set()
    for c in children(e):
        out |= names(c)
    return out


# --- the derivative ---

# derivatives of functions of x, as text in "x"
_DERIVATIVES = {
    "exp": "exp(x)",
    "expm1": "exp(x)",
    "log": "1 / x",
    "log1p": "1 / (1 + x)",
    "sqrt": "0.5 / sqrt(x)",
    "rsqrt": "-0.5 * rsqrt(x) / x",
    "tanh": "1 - tanh(x) * tanh(x)",
    "sin": "cos(x)",
    "cos": "-sin(x)",
    "tan": "1 / (cos(x) * cos(x))",
    "asin": "1 / sqrt(1 - x * x)",
    "acos": "-1 / sqrt(1 - x * x)",
    "atan": "1 / (1 + x * x)",
    "sinh": "cosh(x)",
    "cosh": "sinh(x)",
    "erf": "1.1283791670955126 * exp(-(x * x))",
    "abs": "x > 0 ? 1 : (x < 0 ? -1 : 0)",
    "fabs": "x > 0 ? 1 : (x < 0 ? -1 : 0)",
}
_FLAT = {"floor", "ceil", "round", "trunc", "sign", "isnan", "isinf"}


class Gradient:
    def __init__(self, d: Definition):
        self.d = d
        self.params = {p.name: p for p in d.params}
        self.written = {s.target: s for s in d.stmts}
        self.tensors = {p.name for p in d.params} | set(self.written)
        self.parts: dict[str, list[str]] = {}  # by tensor: the names of its contributions
        self.lines: list[str] = []
        if len(self.written) < len(d.stmts):
            refuse("a tensor is written by several statements")
        for p in d.params:
            if p.type not in _TYPES:
                refuse(f"{p.name} is no tensor")

    def is_active(self, tensor: str) -> bool:
        return tensor not in self.params or self.params[tensor].type in _FLOATS

    def rank(self, tensor: str) -> int:
        return len(self.params[tensor].dims) if tensor in self.params else len(self.written[tensor].index)

    # An extent is that of a parameter, of a result's gradient, which has the result's shape, or of a temporary.
    def dim(self, tensor: str, axis: int):
        if tensor in self.params:
            text = self.params[tensor].dims[axis]
            return Num(text) if text.isdigit() else Name(text) if text.isidentifier() else Dim(tensor, axis)
        return Dim("d_" + tensor if tensor in self.d.outs else tensor, axis)

    def variables(self, s: Stmt) -> dict:
        """The range (least, end) of each index: from the result, `where`, and loads whose subscript is the index."""
        out: dict = {}
        for axis, i in enumerate(s.index):
            if not isinstance(i, Name) or i.id in out:
                refuse(f"{s.target} has a left side that is not made of different indices")
            out[i.id] = (ZERO, self.dim(s.target, axis))
        for name, low, high in s.where:
            if name in out and low != ZERO:
                refuse(f"{s.target} does not begin at 0")
            out[name] = (low, high)
        known = {p for param in self.d.params for p in param.dims}

        def visit(e):
            if isinstance(e, Call) and e.name in self.tensors:
                for axis, a in enumerate(e.args):
                    if isinstance(a, Name) and a.id not in out and a.id not in known:
                        out[a.id] = (ZERO, self.dim(e.name, axis))
            for c in children(e):
                visit(c)

        visit(s.body)
        free = {
            n for n in names(s.body) if n not in out and n not in known and n not in self.tensors and n not in ("inf", "nan")
        }
        if free:
            refuse(f"the range of {min(free)} is not said by `where` or by a subscript of it alone")
        return out

    def loads(self, e, up, guards: tuple, emit):
        """Calls |emit|(tensor, subscripts, gradient of the load, guards) for each load under |e|."""
        if isinstance(e, Call) and e.name in self.tensors or isinstance(e, Name) and e.id in self.tensors:
            name, args = (e.name, e.args) if isinstance(e, Call) else (e.id, ())
            if self.is_active(name):
                emit(name, args, up, guards)
        elif isinstance(e, Un) and e.op == "-":
            self.loads(e.arg, neg(up), guards, emit)
        elif isinstance(e, Bin) and e.op in "+-":
            self.loads(e.a, up, guards, emit)
            self.loads(e.b, up if e.op == "+" else neg(up), guards, emit)
        elif isinstance(e, Bin) and e.op == "*":
            self.loads(e.a, mul(up, e.b), guards, emit)
            self.loads(e.b, mul(up, e.a), guards, emit)
        elif isinstance(e, Bin) and e.op == "/":
            self.loads(e.a, Bin("/", up, e.b), guards, emit)
            self.loads(e.b, neg(Bin("/", mul(up, e.a), Bin("*", e.b, e.b))), guards, emit)
        elif isinstance(e, Sel):
            self.loads(e.a, up, (*guards, e.cond), emit)
            self.loads(e.b, up, (*guards, Un("!", e.cond)), emit)
        elif isinstance(e, Call):
            self.function(e, up, guards, emit)
        elif isinstance(e, (Bin, Un)) and self.any_active(e):
            if e.op in "%":
                refuse("it has a remainder of elements")

    def any_active(self, e) -> bool:
        own = isinstance(e, Call) and e.name in self.tensors and self.is_active(e.name)
        return own or any(self.any_active(c) for c in children(e))

    def function(self, e: Call, up, guards, emit):
        x = e.args[0] if e.args else None
        if e.name in _DERIVATIVES:
            self.loads(x, mul(up, replace(Reader(_DERIVATIVES[e.name]).exp(), "x", x)), guards, emit)
        elif e.name in _FLOATS:
            self.loads(x, up, guards, emit)
        elif e.name in ("max", "min") and len(e.args) == 2:
            first = Bin(">=" if e.name == "max" else "<=", x, e.args[1])
            self.loads(x, up, (*guards, first), emit)
            self.loads(e.args[1], up, (*guards, Un("!", first)), emit)
        elif e.name == "pow" and not self.any_active(e.args[1]):
            power = Call("pow", (x, Bin("-", e.args[1], ONE)))
            self.loads(x, mul(up, mul(e.args[1], power)), guards, emit)
        elif e.name not in _FLAT and self.any_active(e):
            refuse(f"that of {e.name} is not known")

    def statement(self, s: Stmt):
        out = Call("d_" + s.target, s.index) if s.index else Name("d_" + s.target)
        own = Call(s.target, s.index) if s.index else Name(s.target)
        variables, guards, up = self.variables(s), (), out
        if s.op in ("max=!", "min=!"):  # elements equal to the extreme share its gradient
            is_it = Bin("==", s.body, own)
            count = f"n_{s.target}"
            where = [(v, *variables[v]) for v in variables]
            self.lines.append(show_stmt(count, [i.id for i in s.index], "+=!", Sel(is_it, Num("1.0"), Num("0.0")), where))
            up = Bin("/", out, Call(count, s.index) if s.index else Name(count))
            guards = (is_it,)
        self.loads(s.body, up, guards, lambda *a: self.emit(s, variables, *a))

    def emit(self, s: Stmt, variables: dict, tensor: str, args: tuple, up, guards: tuple):
        left, used, where = [], set(), []
        solved: list = []  # conditions of the solved indices
        inside, outside = list(guards), []
        free = set(variables)
        # subscripts that are one index come first: they need no condition
        for axis, a in enumerate(args):
            plain = isinstance(a, Name) and a.id in free and a.id not in used
            left.append(a.id if plain else f"p{axis}_")
            if plain:
                used.add(a.id)
                end = self.dim(tensor, axis)
                where.append((a.id, ZERO, end))
                low, high = variables[a.id]
                if high != end or low != ZERO:
                    solved += [Bin(">=", a, low), Bin("<", a, high)]
            else:
                where.append((left[-1], ZERO, self.dim(tensor, axis)))
        gone: dict = {}
        for axis, a in enumerate(args):
            p = Name(left[axis])
            if isinstance(a, Name) and left[axis] == a.id:
                continue
            for v, by in gone.items():
                a = replace(a, v, by)
            form = affine(a, free)
            open_ = [v for v in (form or {}) if v and v not in used and v not in gone]
            if not open_:
                outside.append(Bin("==", p, a))
                continue
            v = min(open_, key=lambda v: (abs(form[v]) != 1, v not in [i.id for i in s.index if isinstance(i, Name)]))
            c = form[v]
            rest = sub(p, form[""])
            for w, k in form.items():
                if w and w != v:
                    term = Name(w) if abs(k) == 1 else mul(Num(str(abs(k))), Name(w))
                    rest = sub(rest, term) if k > 0 else add(rest, term)
            if c < 0:
                rest, c = neg(rest), -c
            value = rest if c == 1 else Bin("/", rest, Num(str(c)))
            if c != 1:
                solved.append(Bin("==", Bin("%", rest, Num(str(c))), ZERO))
            low, high = variables[v]
            solved += [Bin(">=", value, low), Bin("<", value, high)]
            gone[v] = value
        body = up
        summed = [v for v in variables if v not in used and v not in gone]
        where += [(v, *variables[v]) for v in summed]
        for v, by in gone.items():
            body = replace(body, v, by)
            inside = [replace(c, v, by) for c in inside]
            outside = [replace(c, v, by) for c in outside]
        for conditions in (outside + inside, solved):
            if conditions:
                body = Sel(both(conditions), body, Num("0"))
        part = f"g{len(self.lines)}_{tensor}"
        op = "+=!" if summed else "="
        if not left:
            op = "+=!" if summed else "="
        self.lines.append(show_stmt(part, left, op, body, where))
        self.parts.setdefault(tensor, []).append(part)

    def total(self, tensor: str, extra=()):
        """The statement that sums the contributions."""
        index = [f"i{k}" for k in range(self.rank(tensor))]
        where = [(i, ZERO, self.dim(tensor, k)) for k, i in enumerate(index)]
        body = ZERO
        for part in (*self.parts.get(tensor, ()), *extra):
            body = add(body, Call(part, tuple(map(Name, index))) if index else Name(part))
        name = "d_" + tensor
        return show_stmt(name, index, "=", body if body != ZERO else Num("0.0"), where)

    def text(self) -> str:
        d = self.d
        for name in self.params:
            if "d_" + name in self.tensors:
                refuse(f"d_{name} is a name of its own")
        for s in reversed(d.stmts):
            if s.target in d.outs:
                if self.parts.get(s.target):
                    refuse(f"the output {s.target} is read by a later statement")
            elif s.target in self.parts:
                self.lines.append(self.total(s.target))
            else:
                continue
            self.statement(s)
        wanted = [p for p in d.params if p.type in _FLOATS]
        ends = [self.total(p.name) for p in wanted]
        takes = [f"{p.type}({', '.join(p.dims)}) {p.name}" if p.dims else f"{p.type} {p.name}" for p in d.params]
        for o in d.outs:
            if o not in self.written:
                refuse(f"the output {o} is not written")
            sizes = ", ".join(f"G{d.outs.index(o)}_{k}" for k in range(self.rank(o)))
            takes.append(f"float({sizes}) d_{o}" if sizes else f"float d_{o}")
        gives = [f"{p.type}({', '.join(p.dims)}) d_{p.name}" if p.dims else f"{p.type} d_{p.name}" for p in wanted]
        forward = [show_stmt(s.target, [i.id for i in s.index], s.op, s.body, s.where) for s in d.stmts if self.is_needed(s)]
        body = "\n".join(forward + self.lines + ends)
        return f"def {d.name}_gradient({', '.join(takes)}) -> ({', '.join(gives)}) {{\n{body}\n}}\n"

    def is_needed(self, s: Stmt) -> bool:
        """Whether the derivative, or a forward statement that it needs, reads what |s| computes."""
        reads = re.compile(rf"(?<![\w.]){re.escape(s.target)}(?![\w])")
        later = self.d.stmts[self.d.stmts.index(s) + 1 :]
        return any(reads.search(line) for line in self.lines) or any(
            reads.search(show(other.body)) and self.is_needed(other) for other in later
        )


def derive(text: str, entry: Optional[str] = None) -> str:
    """The text of a definition that computes the gradients of |entry|'s float parameters.

    Its parameters are |entry|'s and d_Y for each output Y, its results d_X for each float parameter X.
    """
    return Gradient(read(text, entry)).text()
