// annotate, bind, pad, transform_layout, storage_align, prefetch, specialize, pipeline: the shape
// of loops and storage.
#include "unit/schedule/table.h"

#define X46 "param f32 X[4, 6]:(6, 1) "
#define Y46 "param f32 Y[4, 6]:(6, 1) "
#define X3_40 "param f32 X[4, 3, 40]:(120, 40, 1) "
#define X3_32 "param f32 X[4, 3, 32]:(96, 32, 1) "
#define S4 "param f32 S[4]:(1) "

static const table_row notes[] = {
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }",
     "annotate i cache L2\nannotate j \"a b\" 1\nannotate i cache L1",
     "kernel k { " Y46 "for i:4 @cache=L1 { for j:6 @\"a b\"=\"1\" { Y[i, j] = 0f32 } } }", NULL},
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }",
     "annotate i x 1\nannotate i y 2\nsplit i 2 guard a b",
     "kernel k { " Y46 "for a:2 @x=\"1\" @y=\"2\" { for b:2 { for j:6 { Y[a * 2 + b, j] = 0f32 } } "
     "} }",
     NULL},
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }", "annotate i \"\" 1", NULL,
     "schedule: annotate i: error: key must be a name, got an empty one"},
};

static const table_row bindings[] = {
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }",
     "bind i block.x\nbind j thread.x",
     "kernel k { " Y46 "for i:4 block.x { for j:6 thread.x { Y[i, j] = 0f32 } } }", NULL},
    {"kernel k { " X46 S4 "for i:4 { for j:6 { S[i] += X[i, j] } } }",
     "bind i thread.y\nvectorize j",
     "kernel k { " X46 S4 "for i:4 thread.y { for j:6 vectorized { S[i] += X[i, j] } } }", NULL},
    {"kernel k { " X46 S4 "for i:4 { for j:6 { S[i] += X[i, j] } } }", "bind j thread.x", NULL,
     "schedule: bind j: error: loop j carries a dependence: S(i=0, j=0) and S(i=0, j=1) combine "
     "into "
     "S[0]: rfactor j first"},
    {"kernel k { " Y46 "for i:4 thread.x { for j:6 { Y[i, j] = 0f32 } } }", "bind j thread.x", NULL,
     "schedule: bind j: error: an axis must be bound once in a nest, got thread.x again at loop j"},
    {"kernel k { " Y46 "for i:4 thread.x { for j:6 { Y[i, j] = 0f32 } } }", "bind j block.x", NULL,
     "schedule: bind j: error: a block loop must lie outside of thread loops, got j inside one"},
    {"kernel k { " X46 Y46 "local f32 T[6]:(1) for i:4 { alloc T { for j:6 { T[j] = X[i, j] } "
     "for l:6 { Y[i, l] = T[l] } } } }",
     "bind j block.x", NULL,
     "schedule: bind j: error: memory of one thread must lie inside of the block loops, got buffer "
     "T outside of one: compute it further inside"},
    {"kernel k { " X46 Y46 "shared f32 T[6]:(1) for i:4 { alloc T { for j:6 { T[j] = X[i, j] } "
     "for l:6 { Y[i, l] = T[l] } } } }",
     "bind i block.x\nbind j thread.x\nbind l thread.x",
     "kernel k { " X46 Y46 "shared f32 T[6]:(1) for i:4 block.x { alloc T { "
     "for j:6 thread.x { T[j] = X[i, j] } for l:6 thread.x { Y[i, l] = T[l] } } } }",
     NULL},
    {"kernel k { " X46 Y46 "shared f32 T[6]:(1) for i:4 { alloc T { for j:6 { T[j] = X[i, j] } "
     "for l:6 { Y[i, l] = T[l] } } } }",
     "bind j block.x", NULL,
     "schedule: bind j: error: memory that a block shares must lie inside of the block loops, got "
     "buffer T outside of one: compute it further inside"},
};

#define T46 "workspace f32 T[4, 6]:(6, 1) "

static const table_row paddings[] = {
    // a workspace grows; the padding's values load only elements that exist
    {"kernel k { " X46 Y46 T46 "for i:4 { for j:6 { T[i, j] = X[i, j] } } "
     "for a:4 { for b:6 { Y[a, b] = T[a, b] } } }",
     "pad j 4",
     "kernel k { " X46 Y46 "workspace f32 T[4, 8]:(8, 1) "
     "for i:4 { for j:8 { T[i, j] = j < 6 ? X[i, j] : 0f32 } } "
     "for a:4 { for b:6 { Y[a, b] = T[a, b] } } }",
     NULL},
    // a grown buffer is read without guards
    {"kernel k { workspace f32 T[6]:(1) workspace f32 U[6]:(1) for i:6 { T[i] = f32(i) } "
     "for j:6 { U[j] = T[j] } }",
     "pad i 4\npad j 4",
     "kernel k { workspace f32 T[8]:(1) workspace f32 U[8]:(1) for i:8 { T[i] = f32(i) } "
     "for j:8 { U[j] = T[j] } }",
     NULL},
    // a parameter cannot grow
    {"kernel k { " X46 Y46 "for i:4 { for j:6 { Y[i, j] = X[i, j] } } }", "pad j 4",
     "kernel k { " X46 Y46 "for i:4 { for j:8 { if j < 6 { Y[i, j] = X[i, j] } } } }", NULL},
    {"kernel k { " X46 S4 "for i:4 { for j:6 { S[i] += X[i, j] } } }", "pad j 4",
     "kernel k { " X46 S4 "for i:4 { for j:8 { S[i] += j < 6 ? X[i, j] : 0f32 } } }", NULL},
    {"kernel k { " X46 S4 "for i:4 { for j:6 { S[i] max= X[i, j] } } }", "pad j 4",
     "kernel k { " X46 S4 "for i:4 { for j:8 { S[i] max= j < 6 ? X[i, j] : -inff32 } } }", NULL},
    // an element that another iteration may combine into stays unchanged
    {"kernel k { workspace f32 T[12]:(1) for i:3 parallel { for j:3 { T[i * 4 + j] += 1f32 } } }",
     "pad j 8",
     "kernel k { workspace f32 T[12]:(1) for i:3 parallel { for j:8 { if j < 3 { T[i * 4 + j] += "
     "1f32 } } } }",
     NULL},
    // a reduction is padded after its init, so that there is a value to combine into
    {"kernel k { param f32 X[5]:(1) workspace f32 T[5]:(1) param f32 Y[5]:(1) "
     "for a:5 { T[a] = 0f32 } for i:5 { T[i] += X[i] } for j:5 { Y[j] = T[j] } }",
     "pad i 4",
     "kernel k { param f32 X[5]:(1) workspace f32 T[5]:(1) param f32 Y[5]:(1) "
     "for a:5 { T[a] = 0f32 } for i:8 { if i < 5 { T[i] += X[i] } } for j:5 { Y[j] = T[j] } }",
     NULL},
    {"kernel k { param f32 X[5]:(1) workspace f32 T[5]:(1) param f32 Y[5]:(1) "
     "for a:5 { T[a] = 0f32 } for i:5 { T[i] += X[i] } for j:5 { Y[j] = T[j] } }",
     "pad a 4\npad i 4",
     "kernel k { param f32 X[5]:(1) workspace f32 T[8]:(1) param f32 Y[5]:(1) "
     "for a:8 { T[a] = 0f32 } for i:8 { T[i] += i < 5 ? X[i] : 0f32 } for j:5 { Y[j] = T[j] } }",
     NULL},
    // indices that are data are not loaded beyond the end
    {"kernel k { workspace f32 T[6]:(1) workspace i64 I[8]:(1) param f32 X[4]:(1) "
     "for i:6 { T[i] = X[I[i]] } }",
     "pad i 4",
     "kernel k { workspace f32 T[8]:(1) workspace i64 I[8]:(1) param f32 X[4]:(1) "
     "for i:8 { T[i] = i < 6 ? X[I[i]] : 0f32 } }",
     NULL},
    {"kernel k { workspace f32 T[6]:(1) param i64 I[6]:(1) for i:6 { if I[i] < 2 { T[i] = 1f32 } } "
     "}",
     "pad i 4",
     "kernel k { workspace f32 T[8]:(1) param i64 I[6]:(1) for i:8 { if i < 6 ? I[i] < 2 : false { "
     "T[i] = 1f32 } } }",
     NULL},
    // what chooses zero there need not do so twice
    {"kernel k { " X46 T46 "for i:4 { for j:6 { T[i, j] = j < 5 ? X[i, j] : 0f32 } } }", "pad j 4",
     "kernel k { " X46 "workspace f32 T[4, 8]:(8, 1) "
     "for i:4 { for j:8 { T[i, j] = j < 5 ? X[i, j] : 0f32 } } }",
     NULL},
    // sums of padding that is zero, in all factors, are added as they are
    {"kernel k { " X46 S4 T46 "for i:4 { for j:6 { T[i, j] = X[i, j] } } "
     "for a:4 { for b:6 { S[a] += T[a, b] * T[a, b] } } }",
     "pad j 4\npad b 4",
     "kernel k { " X46 S4 "workspace f32 T[4, 8]:(8, 1) "
     "for i:4 { for j:8 { T[i, j] = j < 6 ? X[i, j] : 0f32 } } "
     "for a:4 { for b:8 { S[a] += T[a, b] * T[a, b] } } }",
     NULL},
    {"kernel k { " X46 S4 T46 "for i:4 { for j:6 { T[i, j] = X[i, j] } } "
     "for a:4 { for b:6 { S[a] max= T[a, b] } } }",
     "pad j 4\npad b 4",
     "kernel k { " X46 S4 "workspace f32 T[4, 8]:(8, 1) "
     "for i:4 { for j:8 { T[i, j] = j < 6 ? X[i, j] : 0f32 } } "
     "for a:4 { for b:8 { S[a] max= b < 6 ? T[a, b] : -inff32 } } }",
     NULL},
    {"kernel k { " X46 S4 T46 "workspace f32 U[6]:(1) for i:4 { for j:6 { T[i, j] = X[i, j] } } "
     "for l:6 { U[l] = f32(l) } for a:4 { for b:6 { S[a] += T[a, b] * U[b] } } }",
     "pad j 4\npad l 4\npad b 4",
     "kernel k { " X46 S4 "workspace f32 T[4, 8]:(8, 1) workspace f32 U[8]:(1) "
     "for i:4 { for j:8 { T[i, j] = j < 6 ? X[i, j] : 0f32 } } for l:8 { U[l] = f32(l) } "
     "for a:4 { for b:8 { S[a] += b < 6 ? T[a, b] * U[b] : 0f32 } } }",
     NULL},
    {"kernel k { " X46 S4 T46 "for i:4 { for j:6 { T[i, j] = X[i, j] } } "
     "for l:4 { T[l, 0] = 1f32 } for a:4 { for b:6 { S[a] += T[a, b] } } }",
     "pad j 4\npad b 4",
     "kernel k { " X46 S4 "workspace f32 T[4, 8]:(8, 1) "
     "for i:4 { for j:8 { T[i, j] = j < 6 ? X[i, j] : 0f32 } } "
     "for l:4 { T[l, 0] = 1f32 } for a:4 { for b:8 { S[a] += b < 6 ? T[a, b] : 0f32 } } }",
     NULL},
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }", "pad j 3",
     "kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }", NULL},
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }", "pad j 0", NULL,
     "schedule: pad j: error: factor must be in [1, 65536], got 0"},
    {"kernel k { " Y46 "for i:4 parallel { for j:6 { Y[i, j] = 0f32 } } }", "pad i 3", NULL,
     "schedule: pad i: error: loop i must be serial, got parallel: do this before"},
    {"kernel k { workspace f32 T[6]:(1) for i:6 { for j:i { T[i] += 1f32 } } }", "pad i 4", NULL,
     "schedule: pad i: error: loop j must have an extent of its own, got one that uses i"},
};

static const table_row layouts[] = {
    {"kernel k { " X46 Y46 T46 "for i:4 { for j:6 { T[i, j] = X[i, j] } } "
     "for a:4 { for b:6 { Y[a, b] = T[a, b] + T[3 - a, b] } } }",
     "transform_layout T 1 0",
     "kernel k { " X46 Y46 "workspace f32 T[6, 4]:(4, 1) for i:4 { for j:6 { T[j, i] = X[i, j] } } "
     "for a:4 { for b:6 { Y[a, b] = T[b, a] + T[b, 3 - a] } } }",
     NULL},
    {"kernel k { " X46 Y46 T46 "for i:4 { for j:6 { T[i, j] = X[i, j] } } "
     "for a:4 { for b:6 { Y[a, b] = T[a, b] } } }",
     "transform_layout T 1/4 0^8 1%4",
     "kernel k { " X46 Y46 "workspace f32 T[2, 8, 4]:(32, 4, 1) "
     "for i:4 { for j:6 { T[j / 4, i, j % 4] = X[i, j] } } "
     "for a:4 { for b:6 { Y[a, b] = T[b / 4, a, b % 4] } } }",
     NULL},
    {"kernel k { " X46 Y46 "for i:4 { for j:6 { Y[i, j] = X[i, j] } } }", "transform_layout X 1 0",
     NULL,
     "schedule: transform_layout X: error: buffer must not be a parameter, whose layout is the "
     "caller's: stage it"},
    {"kernel k { " X46 Y46 "for i:4 { for j:6 { Y[i, j] = X[i, 5 - j] } } }", "view X 1 3",
     "kernel k { param f32 X[4, 2, 3]:(6, 3, 1) " Y46
     "for i:4 { for j:6 { Y[i, j] = X[i, (2 - j) / 3 + 1, (2 - j) % 3] } } }",
     NULL},
    {"kernel k { param f32 X[24]:(1) " Y46 "for i:4 { for j:6 { Y[i, j] = X[i * 6 + j] } } }",
     "view X 0 6", "kernel k { " X46 Y46 "for i:4 { for j:6 { Y[i, j] = X[i, j] } } }", NULL},
    {"kernel k { " X46 Y46 "for i:4 { for j:6 { Y[i, j] = X[i, j] } } }", "view X 1 4", NULL,
     "schedule: view X: error: block must divide the axis' extent 6, got 4"},
    {"kernel k { " X46 Y46 "for i:4 { for j:6 { Y[i, j] = X[i, j] } } }", "view X 2 1", NULL,
     "schedule: view X: error: axis must be one of 2, got 2"},
    {"kernel k { " X46 T46 "for i:4 { for j:6 { T[i, j] = X[i, j] } } }", "view T 1 3", NULL,
     "schedule: view T: error: buffer must be a parameter, got workspace: transform_layout it"},
    {"kernel k { " T46 "for i:4 { for j:6 { T[i, j] = 0f32 } } }", "transform_layout T 1", NULL,
     "schedule: transform_layout T: error: source axis 0 must be named whole, or as / block and % "
     "block"},
    {"kernel k { " T46 "for i:4 { for j:6 { T[i, j] = 0f32 } } }",
     "transform_layout T 0/1000000000 0%1000000000 1/1000000000 1%1000000000", NULL,
     "schedule: transform_layout T: error: buffer T must have at most 4398046511104 elements, got "
     "more"},
    {"kernel k { " T46 "for i:4 { for j:6 { T[i, j] = 0f32 } } }", "storage_align T 0 16 1",
     "kernel k { workspace f32 T[4, 6]:(17, 1) for i:4 { for j:6 { T[i, j] = 0f32 } } }", NULL},
    {"kernel k { workspace f32 T[2, 4, 6]:(24, 6, 1) for i:4 { for j:6 { T[1, i, j] = 0f32 } } }",
     "storage_align T 1 8 0\nstorage_align T 0 8 4",
     "kernel k { workspace f32 T[2, 4, 6]:(36, 8, 1) for i:4 { for j:6 { T[1, i, j] = 0f32 } } }",
     NULL},
    {"kernel k { " T46 "for i:4 { for j:6 { T[i, j] = 0f32 } } }", "storage_align T 1 16 0", NULL,
     "schedule: storage_align T: error: axis must be one of 2 but the last, got 1"},
    {"kernel k { workspace f32 V[6]:(1) for i:6 { V[i] = 0f32 } }", "storage_align V 0 16 0", NULL,
     "schedule: storage_align V: error: buffer must have two axes: the distance of its rows is "
     "aligned, got 1 axis"},
    {"kernel k { " T46 "for i:4 { for j:6 { T[i, j] = 0f32 } } }",
     "bind i block.x\ncluster i 4\ncluster i 2",
     "kernel k { " T46 "for i:4 block.x @cluster=\"2\" { for j:6 { T[i, j] = 0f32 } } }", NULL},
    {"kernel k { " T46 "for i:4 block.y { for j:6 { T[i, j] = 0f32 } } }", "cluster i 2", NULL,
     "schedule: cluster i: error: loop must be bound to block.x, got a block.y one"},
    {"kernel k { " T46 "for i:4 block.x { for j:6 { T[i, j] = 0f32 } } }", "cluster i 3", NULL,
     "schedule: cluster i: error: blocks must be 2, 4 or 8, got 3"},
    {"kernel k { " T46 "for j:6 block.x { for i:4 { T[i, j] = 0f32 } } }", "cluster j 4", NULL,
     "schedule: cluster j: error: blocks must divide the loop's extent 6, got 4"},
    {"kernel k { " T46 "for j:6 block.x { for i:4 { T[i, j] = 0f32 } } }", "crew i 2",
     "kernel k { " T46 "for j:6 block.x { for i:4 @warp_specialize=\"2\" { T[i, j] = 0f32 } } }",
     NULL},
    {"kernel k { " T46 "for j:6 block.x { for i:4 { T[i, j] = 0f32 } } }", "warp_specialize j 2",
     NULL,
     "schedule: warp_specialize j: error: consumers must be in [1, 1] of a block.x loop, got 2"},
    {"kernel k { " T46 "for j:6 unrolled { for i:4 { T[i, j] = 0f32 } } }", "warp_specialize j 1",
     NULL,
     "schedule: warp_specialize j: error: loop must be serial or bound to block.x, got one that is "
     "unrolled"},
    {"kernel k { " T46 X46 Y46
     "for i:4 { for j:6 { T[i, j] = X[i, j] } } for k:24 { Y[k / 6, k % 6] "
     "= X[k / 6, k % 6] } }",
     "fuse_horizontally k",
     "kernel k { " T46 X46 Y46
     "for i:4 { for j:6 { T[i, j] = X[i, j] } } for k:24 @fuse_horizontally=\"1\" { "
     "Y[k / 6, k % 6] = X[k / 6, k % 6] } }",
     NULL},
    {"kernel k { " T46 X46 Y46
     "for i:4 { for j:6 { T[i, j] = X[i, j] } } for k:24 { Y[k / 6, k % 6] "
     "= T[k / 6, k % 6] } }",
     "beside k", NULL,
     "schedule: fuse_horizontally k: error: nests must need nothing of each other, got buffer T, "
     "which both "
     "touch and one writes"},
    {"kernel k { " T46 "for i:4 { for j:6 { T[i, j] = 0f32 } } }", "beside i", NULL,
     "schedule: fuse_horizontally i: error: loop must be the outermost of a nest behind another "
     "one"},
    {"kernel k { " T46 "for i:4 { for j:6 { T[i, j] = 0f32 } } }", "swizzle T", NULL,
     "schedule: swizzle T: error: buffer must be shared, got workspace"},
    {"kernel k { shared f16 T[4, 64]:(64, 1) for o:2 { alloc T { for i:4 { T[i, 0] = 0f16 } } } }",
     "swizzle T",
     "kernel k { shared f16 T[4, 64]:(64, 1) swizzled for o:2 { alloc T { for i:4 { T[i, 0] = 0f16 "
     "} } } }",
     NULL},
    {"kernel k { " T46 "for i:4 { for j:6 { T[i, j] = 0f32 } } }", "storage_align T 0 16 16", NULL,
     "schedule: storage_align T: error: offset must be in [0, factor), got 16 of 16"},
    {"kernel k { local f32 T[4, 6]:(6, 1) for o:2 { alloc T { for i:4 { T[i, 0] = 0f32 } } } }",
     "storage_align T 0 1000000 0", NULL,
     "schedule: storage_align T: error: buffer T must have at most 1048576 bytes, got 12000024"},
    // a thread's stack holds all that lives in a nest
    {"kernel k { param f32 X[1024, 256]:(256, 1) local f32 P[6, 1024, 256]:(262144, 256, 1) "
     "param f32 Y[4]:(1) for i:4 { alloc P { for j:6 { P[j, i, i] = 1f32 } "
     "for k:1024 { for l:256 { Y[i] += X[k, l] + P[0, i, i] } } } } }",
     "stage X i local C 0 1", NULL,
     "schedule: stage X: error: the buffers that live in one nest must have at most 6291456 bytes "
     "together, got more with C: choose a loop further inside, or a workspace"},
    // the copy of a whole axis, rounded up and filled with zeros
    {"kernel k { " X46 Y46 "for i:4 { for j:6 { Y[i, j] = X[i, j] } } }", "stage X i local C 0 1^4",
     "kernel k { " X46 Y46 "local f32 C[1, 8]:(8, 1) for i:4 { alloc C { for C.0:1 { for C.1:8 { "
     "C[0, C.1] = C.1 < 6 ? X[i, C.1] : 0f32 } } for j:6 { Y[i, j] = C[0, j] } } } }",
     NULL},
};

static const table_row fetches[] = {
    {"kernel k { param f32 X[64, 40]:(40, 1) param f32 S[64]:(1) for i:64 { for j:40 { S[i] += "
     "X[i, "
     "j] } } }",
     "prefetch X i 2",
     "kernel k { param f32 X[64, 40]:(40, 1) param f32 S[64]:(1) for i:64 { "
     "for i.X.fetch.1:3 unrolled { prefetch X[i + 2, i.X.fetch.1 * 16] } for j:40 { S[i] += X[i, "
     "j] } } }",
     NULL},
    {"kernel k { param f32 X[64]:(1) param f32 S[64]:(1) for i:64 { S[i] = X[i] } }",
     "prefetch X i 16",
     "kernel k { param f32 X[64]:(1) param f32 S[64]:(1) for i:64 { prefetch X[i + 16] S[i] = X[i] "
     "} "
     "}",
     NULL},
    {"kernel k { " X46 S4 "for i:4 { for j:6 { S[i] += X[0, j] } } }", "prefetch X i 1", NULL,
     "schedule: prefetch X: error: the part of the buffer that an iteration reads must move with "
     "loop i, got one that is the same for all or not known"},
    {"kernel k { " X46 S4 "for i:4 { for j:6 { S[i] += X[i, j] } } }", "prefetch S j 1", NULL,
     "schedule: prefetch S: error: the part of the buffer that an iteration reads must move with "
     "loop j, got one that is the same for all or not known"},
    {"kernel k { " X46 S4 "for i:4 { for j:6 { S[i] += X[i, j] } for t:2 { S[i] = 0f32 } } }",
     "prefetch X t 1", NULL, "schedule: prefetch X: error: loop t must read or write the buffer"},
    {"kernel k { " S4
     "local f32 C[4, 6]:(6, 1) alloc C { for i:4 { for j:6 { S[i] += C[i, j] } } } }",
     "prefetch C i 1",
     "kernel k { " S4 "local f32 C[4, 6]:(6, 1) alloc C { for i:4 { prefetch C[i + 1, 0] for j:6 { "
     "S[i] += C[i, j] } } } }",
     NULL},
    {"kernel k { " S4
     "local f32 C[4, 6]:(6, 1) for i:4 { alloc C { for j:6 { S[i] += C[i, j] } } } }",
     "prefetch C i 1", NULL,
     "schedule: prefetch C: error: buffer must lie in memory, outside of loop i, got local"},
    {"kernel k { " X46 S4 "for i:4 parallel { for j:6 { S[i] += X[i, j] } } }", "prefetch X i 1",
     NULL, "schedule: prefetch X: error: loop i must be serial, got parallel: do this before"},
    // distributed, for a sliding window: the 8 elements that the previous iteration has not
    // prefetched
    {"kernel k { param f32 X[64]:(1) " S4
     "for i:4 { for t:4 { for j:24 { S[i] += X[i*8 + t*0 + j] } } } }",
     "prefetch X i 1 t",
     "kernel k { param f32 X[64]:(1) " S4
     "for i:4 { for t:4 { prefetch far X[i*8 + t*2 + 24] for j:24 { S[i] += X[i*8 + j] } } } }",
     NULL},
    // distributed: 3 * 32 elements over the 6 iterations inside, 16 each; over 3, 32 each; over 48,
    // 2 each
    {"kernel k { " X3_32 S4
     "for i:4 parallel { for u:2 { for t:3 { for j:32 { S[i] += X[i, t, j] } } } } }",
     "prefetch X i 1 t",
     "kernel k { " X3_32 S4
     "for i:4 parallel { for u:2 { for t:3 { prefetch far X[i + 1, 0, u*48 + t*16] "
     "for j:32 { S[i] += X[i, t, j] } } } } }",
     NULL},
    {"kernel k { " X3_32 S4 "for i:4 { for t:3 { for j:32 { S[i] += X[i, t, j] } } } }",
     "prefetch X i 2 t",
     "kernel k { " X3_32 S4
     "for i:4 { for t:3 { for t.X.fetch:2 unrolled { prefetch far X[i + 2, 0, t*32 + "
     "t.X.fetch*16] } for j:32 { S[i] += X[i, t, j] } } } }",
     NULL},
    {"kernel k { " X3_32 S4 "for i:4 { for t:3 { for j:32 { S[i] += X[i, t, j] } } } }",
     "prefetch X t 1 j",
     "kernel k { " X3_32 S4
     "for i:4 { for t:3 { for j:32 { prefetch far X[i, t + 1, j] S[i] += X[i, t, j] } } } }",
     NULL},
    {"kernel k { " X3_32 S4 "for i:4 { for t:3 { for j:32 { S[i] += X[i, t, j] } } } }",
     "prefetch X t 1 i", NULL, "schedule: prefetch X: error: loop i must be inside of loop t"},
    {"kernel k { " X3_32 S4 "for i:4 { for t:3 { for j:32 { S[i] += X[i, t, j] } } } }",
     "prefetch X t 1 t", NULL, "schedule: prefetch X: error: loop t must be inside of loop t"},
    // pieces of one line: one in each of 3 iterations; of two lines: 2 an iteration, then 1 in the
    // first 6 of 48
    {"kernel k { " X3_32 S4 "for i:4 { for t:3 { for j:16 { S[i] += X[i, t, j] } } } }",
     "prefetch X i 1 t",
     "kernel k { " X3_32 S4
     "for i:4 { for t:3 { prefetch far X[i + 1, t, 0] for j:16 { S[i] += X[i, t, j] } } } }",
     NULL},
    {"kernel k { " X3_40 S4 "for i:4 { for t:3 { for j:32 { S[i] += X[i, t, j] } } } }",
     "prefetch X i 1 t",
     "kernel k { " X3_40 S4
     "for i:4 { for t:3 { for t.X.fetch:2 unrolled { prefetch far X[i + 1, t, "
     "t.X.fetch*16] } for j:32 { S[i] += X[i, t, j] } } } }",
     NULL},
    {"kernel k { " X3_40 S4 "for i:4 { for t:3 { for j:32 { S[i] += X[i, t, j] } } } }",
     "prefetch X i 1 j",
     "kernel k { " X3_40 S4
     "for i:4 { for t:3 { for j:32 { if t*32 + j < 6 { prefetch far X[i + 1, t*16 + j/2, "
     "j%2*16] } S[i] += X[i, t, j] } } } }",
     NULL},
    // the axes unchanged
    {"kernel k { param f32 X[3, 4, 16]:(16, 48, 1) " S4
     "for i:4 { for t:3 { for j:16 { S[i] += X[t, i, j] } } } }",
     "prefetch X i 1 t",
     "kernel k { param f32 X[3, 4, 16]:(16, 48, 1) " S4
     "for i:4 { for t:3 { prefetch far X[0, i + 1, t*16] for j:16 { S[i] += X[t, i, j] } } } }",
     NULL},
    // what is written
    {"kernel k { param f32 X[4, 32]:(32, 1) for i:4 { for j:32 { X[i, j] = 0f32 } } }",
     "prefetch X i 1 j",
     "kernel k { param f32 X[4, 32]:(32, 1) for i:4 { for j:32 { prefetch far X[i + 1, j] "
     "X[i, j] = 0f32 } } }",
     NULL},
    {"kernel k { param f32 X[4, 4096]:(4096, 1) " S4
     "for i:4 { for t:2 { for j:2048 { S[i] += X[i, t*2048 + j] } } } }",
     "prefetch X i 1 t", NULL,
     "schedule: prefetch X: error: an iteration of loop t must ask for at most 16 lines, got 128"},
};

static const table_row cases[] = {
    // an affine condition decides the comparisons that follow from it, and no others
    {"kernel k { param f32 Y[4, 64]:(64, 1) for b:4 { for c:4 { for j:16 { Y[b, c*16 + j] = "
     "c*16 + j <= b*16 ? 1f32 : c*16 + j < b*16 - 3 ? 2f32 : 3f32 } } } }",
     "specialize c c*16 + 16 <= b*16",
     "kernel k { param f32 Y[4, 64]:(64, 1) for b:4 { for c:4 { if c < b { for j:16 { "
     "Y[b, c*16 + j] = 1f32 } } if b <= c { for j.b:16 { Y[b, c*16 + j.b] = c*16 + j.b <= "
     "b*16 ? 1f32 : c*16 + j.b + 3 < b*16 ? 2f32 : 3f32 } } } } }",
     NULL},
    {"kernel k { param i64 s[]:() " Y46 "for i:4 { for j:6 { Y[i, j] = f32(j * s[]) } } }",
     "specialize i s[] == 1",
     "kernel k { param i64 s[]:() " Y46 "for i:4 { if s[] == 1 { for j:6 { Y[i, j] = f32(j) } } "
     "if s[] != 1 { for j.b:6 { Y[i, j.b] = f32(j.b * s[]) } } } }",
     NULL},
    {"kernel k { " Y46 "for i:4 { for j:6 { if i + j < 7 { Y[i, j] = f32(min(j, 2)) } } } }",
     "specialize j j < 3 && i<1",
     "kernel k { " Y46 "for i:4 { for j:6 { if j < 3 && i < 1 { Y[0, j] = f32(j) } "
     "if j >= 3 || i >= 1 { if i + j < 7 { Y[i, j] = f32(min(j, 2)) } } } } }",
     NULL},
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }", "specialize i j < 3", NULL,
     "schedule: specialize i: error: condition must use loop i or loops around it, got \"j\""},
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }", "specialize i i +", NULL,
     "expression:1:4: error: expected an expression, got the end"},
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }", "specialize i i + 1", NULL,
     "schedule: specialize i: error: condition must be bool, got i64"},
    {"kernel k { " Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }", "specialize i Y[i, 0] < 1f32",
     NULL,
     "schedule: specialize i: error: condition must read parameters that the kernel does not "
     "write, got Y"},
    {"kernel k { " X46 Y46 "for i:4 { for j:6 { Y[i, j] = 0f32 } } }",
     "specialize i X[i + 1, 0] < 1f32", NULL,
     "schedule: specialize i: error: condition must read X in [0, 4) of axis 0"},
};

#define COPY "for j:6 { C[j] = X[i, j] } "
#define USE "for l:6 { Y[i, l] = C[l] * 2f32 } "
static const table_row pipelines[] = {
    {"kernel k { " X46 Y46 "local f32 C[6]:(1) for i:4 { alloc C { " COPY USE "} } }",
     "pipeline C i 2",
     "kernel k { " X46 Y46
     "local f32 C[2, 6]:(6, 1) alloc C { for C.fill:1 { for j.b:6 { C[0, j.b] "
     "= X[0, j.b] } } for i:4 { if i < 3 { for j:6 { C[(i + 1) % 2, j] = X[i + 1, j] } } "
     "for l:6 { Y[i, l] = C[i % 2, l] * 2f32 } } } }",
     NULL},
    {"kernel k { " X46 Y46 "local f32 C[6]:(1) for i:4 { alloc C { " COPY USE "} } }",
     "pipeline C i 4 4",
     "kernel k { " X46 Y46
     "local f32 C[4, 6]:(6, 1) alloc C { for C.fill:4 { for j.b:6 { C[C.fill, j.b] "
     "= X[C.fill, j.b] } } for i:4 { for l:6 { Y[i, l] = C[i, l] * 2f32 } } } }",
     NULL},
    {"kernel k { " X46 Y46 "local f32 C[6]:(1) for i:4 { alloc C { " COPY USE "} } }",
     "pipeline C i 3 1",
     "kernel k { " X46 Y46
     "local f32 C[3, 6]:(6, 1) alloc C { for C.fill:1 { for j.b:6 { C[0, j.b] "
     "= X[0, j.b] } } for i:4 { if i < 3 { for j:6 { C[(i + 1) % 3, j] = X[i + 1, j] } } "
     "for l:6 { Y[i, l] = C[i % 3, l] * 2f32 } } } }",
     NULL},
    {"kernel k { " X46 Y46 "local f32 C[6]:(1) for i:4 { alloc C { " COPY USE "} } }",
     "pipeline C i 3 3", NULL,
     "schedule: pipeline C: error: iterations ahead must be in [1, 2], got 3"},
    {"kernel k { " X46 Y46 "local f32 C[6]:(1) for i:4 { alloc C { " COPY USE "} } }",
     "pipeline C i 6",
     "kernel k { " X46 Y46
     "local f32 C[6, 6]:(6, 1) alloc C { for C.fill:4 { for j.b:6 { C[C.fill, "
     "j.b] = X[C.fill, j.b] } } for i:4 { for l:6 { Y[i, l] = C[i, l] * 2f32 } } } }",
     NULL},
    {"kernel k { " X46 Y46 "local f32 C[6]:(1) for i:4 { alloc C { " COPY USE "C[0] = 1f32 } } }",
     "pipeline C i 2", NULL,
     "schedule: pipeline C: error: buffer must not be written again after it is read in loop i"},
    {"kernel k { " Y46 "local f32 C[6]:(1) for i:4 { alloc C { for j:6 { C[j] = Y[3 - i, j] } " USE
     "} } }",
     "pipeline C i 2", NULL,
     "schedule: pipeline C: error: the fills of the buffer must not read results of loop i, got "
     "Y"},
    {"kernel k { " X46 Y46
     "local f32 C[6]:(1) for i:4 { alloc C { for j:6 { C[j] = X[i, j] Y[i, j] "
     "= 0f32 } " USE "} } }",
     "pipeline C i 2", NULL,
     "schedule: pipeline C: error: the fills of the buffer must write nothing else, got Y"},
    {"kernel k { " X46 Y46 "local f32 C[6]:(1) for i:4 { alloc C { " COPY USE "} } }",
     "pipeline C i 1", NULL, "schedule: pipeline C: error: depth must be in [2, 64], got 1"},
    {"kernel k { " X46 Y46 "workspace f32 C[6]:(1) for i:4 { " COPY USE "} }", "pipeline C i 2",
     NULL,
     "schedule: pipeline C: error: buffer must be shared or local, got workspace: stage or compute "
     "it so"},
    {"kernel k { " X46 Y46 "local f32 C[6]:(1) for o:1 { alloc C { for i:4 { " COPY USE "} } } }",
     "pipeline C i 2", NULL,
     "schedule: pipeline C: error: buffer must be held by each iteration of loop i itself"},
};

static void run_rows(const table_row *rows, size_t n) {
  for (size_t i = 0; i < n; i++) table_run(&rows[i]);
}

static void notes_change_nothing_else(void **state) {
  (void)state;
  run_rows(notes, KILN_LEN(notes));
}

static void bound_loops_keep_to_their_memory(void **state) {
  (void)state;
  run_rows(bindings, KILN_LEN(bindings));
}

static void buffers_may_lie_otherwise(void **state) {
  (void)state;
  run_rows(layouts, KILN_LEN(layouts));
}

static void lines_are_asked_for_ahead(void **state) {
  (void)state;
  run_rows(fetches, KILN_LEN(fetches));
}

static void cases_have_bodies_of_their_own(void **state) {
  (void)state;
  run_rows(cases, KILN_LEN(cases));
}

static void buffers_are_filled_ahead(void **state) {
  (void)state;
  run_rows(pipelines, KILN_LEN(pipelines));
}

static void padding_has_no_effect(void **state) {
  (void)state;
  run_rows(paddings, KILN_LEN(paddings));
}

// --- against the reference ---

static const char *const mm =
    "mm { in f32 A(7, 5) const f32 B(5, 9) = ... in f32 D(9) temp f32 C(7, 9) out f32 Y(7, 9) "
    "C(i0:7, i1:9 | r0:5) +=! A(i0, r0) * B(r0, i1) "
    "Y(i0:7, i1:9) = max(C(i0, i1) + D(i1), 0f32) }";

static const struct {
  const char *program, *script;
} runs[] = {
    {"k { in f32 X(5, 7) temp f32 T(5, 7) out f32 Y(5, 7) T(i0:5, i1:7) = X(i0, i1) * 2f32 "
     "Y(i0:5, i1:7) = T(i0, 6 - i1) }",
     "pad T.i1 4\npad Y.i1 8\npad T.i0 3\nbind Y.i0 block.x\nbind Y.i1 thread.x\n"
     "annotate Y.i0 note 1"},
    {"mm", "pad C.init.i1 8\npad C.i1 8\npad C.r0 4\nreorder C.i0 C.r0 C.i1\nvectorize C.i1\n"
           "parallel C.i0\npad Y.i1 4"},
    {"mm", "stage B 0 workspace P 1/4 0 1%4\ntransform_layout C 1 0\npad C.init.i1 4\n"
           "pad C.i1 4\nsplit C.i1 4 exact jo ji\nreorder C.i0 jo C.r0 ji\nvectorize ji\n"
           "storage_align C 0 8 3\nstage A C.i0 local Q 0^4 1^8"},
    {"mm", "split C.i0 4 guard io ii\nsplit C.r0 2 guard ko ki\nreorder io ko ii ki C.i1\n"
           "stage A ko local P 1 0\nstage B ko local Q 0 1\npipeline P ko 3\n"
           "prefetch D Y.i1 16\npipeline Q ko 2\nspecialize ko io < 1\nspecialize ii ii == 3"},
    {"mm", "prefetch C Y.i0 1\nprefetch B C.r0 1\nprefetch C Y.i1 4\ntransform_layout C 1 0\n"
           "stage B 0 workspace P 1 0\ncompute_at C Y.i0 local\nvectorize Y.i1"},
    {"k { in f32 X(5, 7) temp f32 T(5, 7) out f32 Y(5, 7) T(i0:5, i1:7) = X(i0, i1) * 2f32 "
     "Y(i0:5, i1:7) = T(i0, 6 - i1) }",
     "prefetch T Y.i0 1\ninline T\nprefetch X Y.i0 1"},
    {"mm", "pad C.init.i0 8\npad C.i0 4\nsplit C.i0 4 guard io ii\nreorder io C.i1 C.r0 "
           "ii\nvectorize ii"},
};

static void schedules_keep_the_meaning(void **state) {
  (void)state;
  for (size_t i = 0; i < KILN_LEN(runs); i++) {
    test_kernel k;
    kernel_open(&k, runs[i].program[1] == 'm' ? mm : runs[i].program, i + 1);
    kiln_schedule s;
    assert_int_equal(kiln_schedule_begin(&k.cx, k.prog, &s), KILN_OK);
    const kiln_status st = kiln_schedule_replay(&s, runs[i].script);
    if (st != KILN_OK) fail_msg("%s\n%s", kiln_diag_message(k.diag, 0), runs[i].script);
    assert_int_equal(kiln_loops_verify(&k.cx, s.loops), KILN_OK);
    kernel_check(&k, s.loops, runs[i].script);
    kernel_check_replay(&k, &s);
    kernel_close(&k);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(notes_change_nothing_else),
      cmocka_unit_test(bound_loops_keep_to_their_memory),
      cmocka_unit_test(padding_has_no_effect),
      cmocka_unit_test(lines_are_asked_for_ahead),
      cmocka_unit_test(cases_have_bodies_of_their_own),
      cmocka_unit_test(buffers_are_filled_ahead),
      cmocka_unit_test(buffers_may_lie_otherwise),
      cmocka_unit_test(schedules_keep_the_meaning),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
