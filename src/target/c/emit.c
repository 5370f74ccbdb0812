// Files, functions and loops of emitted C.
#include "target/c/writer.h"

#include "analysis/uses.h"
#include "target/instr.h"

#include <string.h>

static const char *name_of(const kiln_c_writer *w, int buffer) {
  return kiln_symbol_text(w->cx, w->buffers[buffer]);
}

// --- statements ---

// The dialect's fused multiply-add for the sum of |l|; NULL if it has none, or |l| sums no
// products.
static const char *multiply_add(const kiln_c_writer *w, const kiln_loop *l) {
  const kiln_dtype t = w->l->buffers.data[l->buffer]->dtype;
  const bool adds = l->combiner == KILN_COMBINE_SUM && l->value->kind == KILN_EXPR_MUL &&
                    l->value->dtype == t && (t == KILN_F32 || t == KILN_F64);
  return adds ? w->dialect->multiply_add[t == KILN_F64] : NULL;
}

// acc = fma(a, b, acc)
static void put_multiply_add(kiln_c_writer *w, const kiln_loop *l, const char *name) {
  const int mark = kiln_c_temps_begin(w, 2, l->value->args);
  kiln_c_line(w);
  kiln_c_element(w, l->buffer, l->index);
  kiln_text_printf(w->out, " = %s(", name);
  for (int i = 0; i < 2; i++) {
    kiln_c_expr(w, l->value->args[i]);
    kiln_text_add(w->out, ", ");
  }
  kiln_c_element(w, l->buffer, l->index);
  kiln_text_add(w->out, ");\n");
  kiln_c_temps_end(w, mark);
}

static void put_store(kiln_c_writer *w, const kiln_loop *l) {
  const kiln_buffer *b = w->l->buffers.data[l->buffer];
  const char *fused = multiply_add(w, l);
  if (fused) {
    put_multiply_add(w, l, fused);
    return;
  }
  const bool is_half = kiln_dtype_is_half(b->dtype);
  const bool in_place = !is_half && kiln_dtype_is_float(b->dtype) &&
                        (l->combiner == KILN_COMBINE_SUM || l->combiner == KILN_COMBINE_PROD);
  w->is_coarse = is_half && kiln_c_may_be_coarse(w, l->value);
  const int mark = kiln_c_temps_begin(w, 1, &l->value);
  const kiln_expr *value = l->value;
  if (l->combiner != KILN_COMBINE_NONE && !in_place) {
    const kiln_expr *before = kiln_load(w->cx, b->id, b->dtype, b->rank, l->index);
    value = kiln_combine(w->cx, l->combiner, before, value);
  }
  kiln_c_line(w);
  kiln_c_element(w, l->buffer, l->index);
  const char *operator= !in_place ? "=" : l->combiner == KILN_COMBINE_SUM ? "+=" : "*=";
  kiln_text_printf(w->out, " %s ", operator);
  if (is_half && value->kind == KILN_EXPR_LOAD) { // a copy
    kiln_c_element(w, value->u.tensor, value->args);
  } else if (is_half && value->kind == KILN_EXPR_CAST) {
    kiln_c_rounded(w, value);
  } else if (is_half) {
    kiln_text_printf(w->out, "%s(", kiln_c_helper_of(w->cx, w->prelude, KILN_C_TO_HALF, b->dtype));
    kiln_c_expr(w, value);
    kiln_text_add(w->out, ")");
  } else {
    kiln_c_expr(w, value);
  }
  kiln_text_add(w->out, ";\n");
  kiln_c_temps_end(w, mark);
  w->is_coarse = false;
}

static void put_prefetch(kiln_c_writer *w, const kiln_loop *l) {
  const kiln_buffer *b = w->l->buffers.data[l->buffer];
  const kiln_expr *offset = kiln_c_offset(w, l->buffer, l->index);
  // computed as an integer: the element may be outside of the buffer
  kiln_c_line(w);
  kiln_text_printf(w->out, "__builtin_prefetch((const void *)((uintptr_t)%s + (uintptr_t)(",
                   name_of(w, l->buffer));
  kiln_c_expr(w, kiln_mul(w->cx, offset, kiln_int(w->cx, kiln_dtype_bytes(b->dtype))));
  kiln_text_printf(w->out, ")), 0, %d);\n", l->is_far ? 2 : 3);
}

static bool allocates(const kiln_loop *l, int buffer) {
  for (; l; l = l->next)
    if ((l->kind == KILN_LOOP_ALLOC && l->buffer == buffer) || allocates(l->body, buffer))
      return true;
  return false;
}

// Whether every store under |body| goes to different elements in different iterations of |var|, so
// that the compiler may assume independent iterations.
static bool is_independent(kiln_c_writer *w, const kiln_loop *body, const kiln_loop *l,
                           kiln_symbol var) {
  for (; l; l = l->next) {
    if (l->kind == KILN_LOOP_STORE && !allocates(body, l->buffer)) {
      bool uses = false;
      for (int k = 0; k < w->l->buffers.data[l->buffer]->rank; k++)
        uses |= kiln_expr_uses(l->index[k], var);
      if (!uses) return false;
    }
    if (!is_independent(w, body, l->body, var)) return false;
  }
  return true;
}

static void put_hint(kiln_c_writer *w, const kiln_loop *l) {
  int64_t n = 0;
  if (w->dialect->unroll) {
    if (l->how != KILN_VECTORIZED && l->how != KILN_UNROLLED) return;
    kiln_c_line(w);
    kiln_text_printf(w->out, "%s\n", w->dialect->unroll);
    return;
  }
  if (l->how == KILN_VECTORIZED && is_independent(w, l->body, l->body, l->var)) {
    kiln_c_line(w);
    kiln_text_add(w->out, "#pragma GCC ivdep\n");
  }
  if (l->how == KILN_UNROLLED && kiln_expr_is_int(l->extent, &n) && n > 1 && n <= 1024) {
    kiln_c_line(w);
    kiln_text_printf(w->out, "#pragma GCC unroll %d\n", (int)n);
  }
}

// Writes the loop's binding and notes as comments.
static void put_remarks(kiln_c_writer *w, const kiln_loop *l) {
  const bool bound = kiln_how_is_block(l->how) || kiln_how_is_thread(l->how);
  if (!bound && !l->notes) return;
  kiln_text_printf(w->out, " //%s%s", bound ? " " : "", bound ? kiln_how_text(l->how) : "");
  for (const kiln_note *n = l->notes; n; n = n->next)
    kiln_text_printf(w->out, " @%s=%s", kiln_symbol_text(w->cx, n->key),
                     kiln_symbol_text(w->cx, n->value));
}

// A loop from 0 to its extent, or over [begin, end).
static void put_for(kiln_c_writer *w, const kiln_loop *l, bool parallel) {
  const kiln_symbol name = kiln_c_identifier(w, kiln_symbol_text(w->cx, l->var));
  const kiln_interval n = kiln_expr_interval(w->cx, l->extent, &w->ranges);
  const char *var = kiln_symbol_text(w->cx, name);
  if (!parallel) put_hint(w, l);
  kiln_c_line(w);
  kiln_ranges_push(&w->ranges, l->var, 0, n.hi == INT64_MAX || n.hi <= 0 ? INT64_MAX : n.hi - 1);
  const bool narrow = kiln_c_is_narrow(w, kiln_var(w->cx, l->var));
  kiln_ranges_pop(&w->ranges, 1);
  kiln_text_printf(w->out, "for (%s %s = %s; %s < ", narrow ? "int" : "int64_t", var,
                   parallel ? "begin" : "0", var);
  int64_t extent = 0;
  if (parallel) kiln_text_add(w->out, "end");
  else if (kiln_expr_is_int(l->extent, &extent)) kiln_text_printf(w->out, "%" PRId64, extent);
  else kiln_c_expr(w, l->extent);
  kiln_text_printf(w->out, "; %s++) {", var);
  put_remarks(w, l);
  kiln_text_add(w->out, "\n");
  kiln_map_put(&w->names, l->var, name);
  kiln_ranges_push(&w->ranges, l->var, 0, n.hi == INT64_MAX || n.hi <= 0 ? INT64_MAX : n.hi - 1);
  w->depth++;
  kiln_c_list(w, l->body);
  w->depth--;
  kiln_ranges_pop(&w->ranges, 1);
  kiln_c_line(w);
  kiln_text_add(w->out, "}\n");
}

static void put_if(kiln_c_writer *w, const kiln_loop *l) {
  const int mark = kiln_c_temps_begin(w, 1, &l->cond);
  kiln_c_line(w);
  kiln_text_add(w->out, "if (");
  kiln_c_expr(w, l->cond);
  kiln_text_add(w->out, ") {\n");
  kiln_c_temps_end(w, mark);
  w->depth++;
  kiln_c_list(w, l->body);
  w->depth--;
  kiln_c_line(w);
  kiln_text_add(w->out, "}\n");
}

// Declares the array of an ALLOC, private to the thread.
static void put_array(kiln_c_writer *w, const kiln_loop *l) {
  const kiln_buffer *b = w->l->buffers.data[l->buffer];
  const int64_t elems = kiln_buffer_elems(b);
  w->buffers[b->id] = kiln_c_identifier(w, kiln_symbol_text(w->cx, b->name));
  kiln_c_line(w);
  kiln_text_printf(w->out, "%s %s %s[%" PRId64 "]; // %s\n", w->dialect->aligned,
                   kiln_c_memory_type(b->dtype), name_of(w, b->id), elems > 0 ? elems : 1,
                   kiln_scope_text(b->scope));
}

static void put_alloc(kiln_c_writer *w, const kiln_loop *l) {
  const bool is_last = !l->next; // the enclosing block ends its scope
  if (!is_last) {
    kiln_c_line(w);
    kiln_text_add(w->out, "{\n");
    w->depth++;
  }
  put_array(w, l);
  kiln_c_list(w, l->body);
  if (is_last) return;
  w->depth--;
  kiln_c_line(w);
  kiln_text_add(w->out, "}\n");
}

static void put_node(kiln_c_writer *w, const kiln_loop *l) {
  if (w->put_other && w->put_other(w, l)) return;
  switch (l->kind) {
  case KILN_LOOP_FOR: put_for(w, l, false); return;
  case KILN_LOOP_IF: put_if(w, l); return;
  case KILN_LOOP_STORE: put_store(w, l); return;
  case KILN_LOOP_ALLOC: put_alloc(w, l); return;
  case KILN_LOOP_PREFETCH: put_prefetch(w, l); return;
  case KILN_LOOP_INSTR: return;  // replaced by its meaning before
  case KILN_LOOP_DEVICE: return; // written by put_other
  }
}

static void mark_line(const kiln_c_writer *w) {
  if (!w->marks) return;
  KILN_VEC_PUSH(&w->cx->perm, w->marks, (kiln_line_mark){w->out->n, w->line});
}

static void put_one(kiln_c_writer *w, const kiln_loop *l) {
  const int outer = w->line;
  if (l->line) w->line = l->line;
  mark_line(w);
  put_node(w, l);
  w->line = outer;
  mark_line(w);
}

void kiln_c_list(kiln_c_writer *w, const kiln_loop *l) {
  for (; l; l = l->next) put_one(w, l);
}

// --- functions ---

void kiln_c_function_begin(kiln_c_writer *w) {
  kiln_map_init(&w->names, &w->cx->scratch);
  kiln_map_init(&w->taken, &w->cx->scratch);
  kiln_map_init(&w->temps, &w->cx->scratch);
  kiln_ranges_init(&w->ranges, &w->cx->scratch);
}

static void put_arguments(kiln_c_writer *w, const uint8_t *uses) {
  int n = 0;
  bool any = false;
  for (int i = 0; i < w->l->buffers.n; i++) {
    const kiln_buffer *b = w->l->buffers.data[i];
    if (!kiln_scope_is_argument(b->scope)) continue;
    const int number = n++;
    if (!uses[i]) continue;
    any = true;
    w->buffers[i] = kiln_c_identifier(w, kiln_symbol_text(w->cx, b->name));
    const char *type = kiln_c_memory_type(b->dtype),
               *c = uses[i] & KILN_USES_WRITES ? "" : "const ";
    kiln_text_printf(w->out, "  %s%s *restrict %s = (%s%s *)args[%d]; // %s (", c, type,
                     name_of(w, i), c, type, number, kiln_dtype_text(b->dtype));
    for (int k = 0; k < b->rank; k++)
      kiln_text_printf(w->out, "%s%" PRId64, k ? ", " : "", b->extents[k]);
    kiln_text_add(w->out, ")\n");
  }
  if (!any) kiln_text_add(w->out, "  (void)args;\n");
}

static void put_body(kiln_c_writer *w, const kiln_loop *nest) {
  const kiln_loop *outer = nest;
  while (outer->kind == KILN_LOOP_ALLOC && outer->body && !outer->body->next) outer = outer->body;
  if (outer->kind != KILN_LOOP_FOR || outer->how != KILN_PARALLEL) {
    kiln_text_add(w->out, "  (void)begin, (void)end;\n");
    put_one(w, nest);
    return;
  }
  for (; nest != outer; nest = nest->body) put_array(w, nest);
  put_for(w, outer, true);
}

static void put_function(kiln_c_writer *w, const kiln_loop *nest, const char *symbol, int number) {
  const uint8_t *uses = kiln_uses_of(w->cx, w->l, nest);
  kiln_c_function_begin(w);
  kiln_text_printf(w->out, "\n// %s: nest %d\n", kiln_symbol_text(w->cx, w->l->name), number);
  kiln_text_printf(w->out, "void %s_%d(char *const *args, int64_t begin, int64_t end) {\n", symbol,
                   number);
  put_arguments(w, uses);
  w->depth = 1;
  put_body(w, nest);
  kiln_text_add(w->out, "}\n");
}

static void put_kernel(kiln_c_writer *w, kiln_loops *kernel, const char *symbol) {
  w->l = kiln_instrs_expand(w->cx, kernel);
  w->buffers = KILN_NEW_ARRAY(&w->cx->scratch, kiln_symbol, w->l->buffers.n);
  int number = 0;
  for (const kiln_loop *nest = w->l->body; nest; nest = nest->next)
    put_function(w, nest, symbol, number++);
}

void kiln_c_emit(kiln_ctx *cx, int n, kiln_loops *const *kernels, const char *const *symbols,
                 kiln_text *out) {
  const kiln_mark mark = kiln_arena_mark(&cx->scratch);
  kiln_text functions;
  kiln_text_init(&functions, &cx->perm);
  kiln_c_prelude prelude = {.dialect = &kiln_c17};
  kiln_c_writer w = {.cx = cx, .dialect = &kiln_c17, .prelude = &prelude, .out = &functions};
  for (int i = 0; i < n; i++) put_kernel(&w, kernels[i], symbols[i]);
  kiln_arena_rewind(&cx->scratch, mark); // |out| may be in the scratch arena and grow
  kiln_text_printf(out, "// %s%s: made by Kiln.\n", n == 1 ? "Kernel " : "Kernels",
                   n == 1 ? kiln_symbol_text(cx, kernels[0]->name) : "");
  kiln_text_add(out, kiln_c17.head);
  kiln_c_prelude_print(&prelude, out);
  if (functions.data) kiln_text_add(out, functions.data);
}
