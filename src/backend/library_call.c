// Library calls: text, bounds of accesses, and parts.
#include "backend/library_call.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_NUMBERS = 2 + KILN_CALL_AXES, GRAIN = 16 };
#define MAX_SIZE INT64_C(0x7fffffff)

static const char *const kinds[] = {"product", "convolution"};
static const char *const posts[KILN_N_POSTS] = {"scale", "add",     "clip", "silu",
                                                "gelu",  "sigmoid", "tanh", "gelu_tanh"};
static const struct {
  const char *name; // "": none is written
  int64_t bytes;
} types[KILN_N_CALL_TYPES] = {{"", 4}, {"tf32", 4}, {"f16", 2}, {"bf16", 2}};

int64_t kiln_library_call_type_bytes(kiln_library_call_type t) { return types[t].bytes; }

// Adds the distance from the first element to the last along an axis.
static void reach(int64_t extent, int64_t stride, int64_t *io, bool *io_ok) {
  int64_t far = 0;
  *io_ok = *io_ok && !__builtin_mul_overflow(extent - 1, stride, &far) &&
           !__builtin_add_overflow(*io, far, io);
}

// --- text ---

typedef struct printer {
  char *text;
  size_t n, room;
} printer;

static void put(printer *p, const char *format, ...) {
  va_list args;
  va_start(args, format);
  const int n = vsnprintf(p->n < p->room ? p->text + p->n : NULL,
                          p->n < p->room ? p->room - p->n : 0, format, args);
  va_end(args);
  if (n > 0) p->n += (size_t)n;
}

static void put_numbers(printer *p, const char *word, int n, const int64_t *numbers) {
  put(p, " %s ", word);
  for (int i = 0; i < n; i++) put(p, "%s%" PRId64, i ? ":" : "", numbers[i]);
}

// "a", "a.f16"
static void put_typed(printer *p, const char *word, kiln_library_call_type t, int n,
                      const int64_t *numbers) {
  char typed[16];
  snprintf(typed, sizeof typed, "%s%s%s", word, *types[t].name ? "." : "", types[t].name);
  put_numbers(p, typed, n, numbers);
}

static void put_tensor(printer *p, const char *word, const kiln_library_call_tensor *t) {
  put_typed(p, word, t->type, 2, (int64_t[]){t->arg, t->offset});
}

static void put_axis(printer *p, const char *word, const kiln_library_call_axis *x) {
  put_numbers(p, word, 4, (int64_t[]){x->extent, x->a, x->b, x->c});
}

static uint32_t bits_of(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

static void put_post(printer *p, const kiln_library_call_post *x) {
  if (x->kind == KILN_POST_ADD) {
    int64_t numbers[MAX_NUMBERS] = {x->tensor.arg, x->tensor.offset};
    memcpy(numbers + 2, x->strides, sizeof x->strides);
    put_typed(p, posts[x->kind], x->tensor.type, MAX_NUMBERS, numbers);
  } else put(p, " %s %" PRIx32 ":%" PRIx32, posts[x->kind], bits_of(x->low), bits_of(x->high));
}

size_t kiln_library_call_print(const kiln_library_call *c, char *text, size_t room) {
  printer p = {text, 0, room};
  put(&p, "%s", kinds[c->kind]);
  put_tensor(&p, "a", &c->a);
  put_tensor(&p, "b", &c->b);
  put_tensor(&p, "c", &c->c);
  for (int i = 0; i < c->n_batch; i++) put_axis(&p, "batch", &c->batch[i]);
  if (c->kind == KILN_CALL_PRODUCT) put_axis(&p, "m", &c->m);
  put_axis(&p, "n", &c->n);
  put_axis(&p, "k", &c->k);
  for (int i = 0; c->kind == KILN_CALL_CONVOLUTION && i < 2; i++) {
    const kiln_library_call_window *w = &c->window[i];
    put_numbers(
        &p, "window", 9,
        (int64_t[]){w->out, w->in, w->kernel, w->stride, w->dilation, w->pad, w->a, w->b, w->c});
  }
  for (int i = 0; i < c->n_posts; i++) put_post(&p, &c->posts[i]);
  if (c->workspace.bytes)
    put_numbers(&p, "workspace", 2, (int64_t[]){c->workspace.arg, c->workspace.bytes});
  return p.n;
}

// A word, a type, and the numbers after them.
typedef struct item {
  const char *word;
  size_t length;
  kiln_library_call_type type;
  int n;
  int64_t numbers[MAX_NUMBERS];
} item;

static bool is_word(const item *x, const char *word) {
  return strlen(word) == x->length && strncmp(word, x->word, x->length) == 0;
}

static const char *parse_number(const char *at, int base, int64_t *out) {
  char *end = NULL;
  if (*at == '-' || *at == '+' || *at == ' ') return NULL;
  const unsigned long long v = strtoull(at, &end, base);
  *out = (int64_t)v;
  return end == at || v > (unsigned long long)(base == 16 ? UINT32_MAX : MAX_SIZE) ? NULL : end;
}

static int base_of(const item *x) {
  for (int i = 0; i < KILN_N_POSTS; i++)
    if (i != KILN_POST_ADD && is_word(x, posts[i])) return 16;
  return 10;
}

// The type after the word's point; f32 if there is none.
static const char *parse_type(const char *at, kiln_library_call_type *out) {
  *out = KILN_CALL_F32;
  if (*at != '.') return at;
  const size_t n = strcspn(++at, " ");
  for (int t = KILN_CALL_F32 + 1; t < KILN_N_CALL_TYPES; t++)
    if (strlen(types[t].name) == n && strncmp(types[t].name, at, n) == 0)
      *out = (kiln_library_call_type)t;
  return *out == KILN_CALL_F32 ? NULL : at + n;
}

// gives: NULL if there is no item at |at|
static const char *parse_item(const char *at, item *out) {
  *out = (item){.word = at, .length = strcspn(at, " .")};
  at = parse_type(at + out->length, &out->type);
  if (!at || *at++ != ' ') return NULL;
  for (const int base = base_of(out);; at++) {
    if (out->n == MAX_NUMBERS || !(at = parse_number(at, base, &out->numbers[out->n++])))
      return NULL;
    if (*at == ':') continue;
    if (*at == ' ') return at + 1;
    return *at == 0 ? at : NULL;
  }
}

static bool take_tensor(const item *x, kiln_library_call_tensor *out) {
  *out = (kiln_library_call_tensor){x->numbers[0], x->numbers[1], x->type};
  return x->n == 2;
}

static bool take_workspace(const item *x, kiln_library_call_workspace *out) {
  *out = (kiln_library_call_workspace){x->numbers[0], x->numbers[1]};
  return x->n == 2 && out->bytes > 0;
}

static bool take_axis(const item *x, kiln_library_call_axis *out) {
  *out = (kiln_library_call_axis){x->numbers[0], x->numbers[1], x->numbers[2], x->numbers[3]};
  return x->n == 4 && out->extent > 0;
}

static bool take_window(const item *x, kiln_library_call_window *out) {
  const int64_t *n = x->numbers;
  *out = (kiln_library_call_window){n[0], n[1], n[2], n[3], n[4], n[5], n[6], n[7], n[8]};
  if (x->n != 9 || out->out <= 0 || out->in <= 0 || out->kernel <= 0 || out->stride <= 0 ||
      out->dilation <= 0)
    return false;
  int64_t last = 0, wide = 0; // no window may be in the padding only
  bool ok = true;
  reach(out->out, out->stride, &last, &ok);
  reach(out->kernel, out->dilation, &wide, &ok);
  return ok && last - out->pad <= out->in - 1 && out->pad <= wide;
}

static bool take_post(const item *x, kiln_library_call_post *out) {
  *out = (kiln_library_call_post){.kind = KILN_N_POSTS};
  for (int i = 0; i < KILN_N_POSTS; i++)
    if (is_word(x, posts[i])) out->kind = (kiln_library_call_post_kind)i;
  if (out->kind == KILN_N_POSTS) return false;
  if (out->kind == KILN_POST_ADD) {
    out->tensor = (kiln_library_call_tensor){x->numbers[0], x->numbers[1], x->type};
    memcpy(out->strides, x->numbers + 2, sizeof out->strides);
    return x->n == MAX_NUMBERS;
  }
  const uint32_t bits[2] = {(uint32_t)x->numbers[0], (uint32_t)x->numbers[1]};
  memcpy(&out->low, &bits[0], sizeof out->low);
  memcpy(&out->high, &bits[1], sizeof out->high);
  return x->n == 2;
}

static bool take_item(const item *x, kiln_library_call *out, int *io_windows) {
  if (is_word(x, "a")) return take_tensor(x, &out->a);
  if (is_word(x, "b")) return take_tensor(x, &out->b);
  if (is_word(x, "c")) return take_tensor(x, &out->c);
  if (x->type != KILN_CALL_F32 && !is_word(x, posts[KILN_POST_ADD])) return false;
  if (is_word(x, "workspace")) return take_workspace(x, &out->workspace);
  if (is_word(x, "m")) return take_axis(x, &out->m);
  if (is_word(x, "n")) return take_axis(x, &out->n);
  if (is_word(x, "k")) return take_axis(x, &out->k);
  if (is_word(x, "batch"))
    return out->n_batch < KILN_CALL_BATCH && take_axis(x, &out->batch[out->n_batch++]);
  if (is_word(x, "window")) return *io_windows < 2 && take_window(x, &out->window[(*io_windows)++]);
  return out->n_posts < KILN_CALL_POSTS && take_post(x, &out->posts[out->n_posts++]);
}

bool kiln_library_call_parse(const char *text, kiln_library_call *out) {
  const size_t n = strcspn(text, " ");
  int n_windows = 0;
  *out = (kiln_library_call){.kind = KILN_CALL_PRODUCT, .m = {1, 0, 0, 0}};
  const bool is_product = n == strlen(kinds[0]) && strncmp(text, kinds[0], n) == 0;
  const bool is_convolution = n == strlen(kinds[1]) && strncmp(text, kinds[1], n) == 0;
  if (is_convolution) out->kind = KILN_CALL_CONVOLUTION;
  if ((!is_product && !is_convolution) || text[n] != ' ') return false;
  for (const char *at = text + n + 1; at && *at;) {
    item x;
    at = parse_item(at, &x);
    if (!at || !take_item(&x, out, &n_windows)) return false;
  }
  const bool has_axes = out->m.extent > 0 && out->n.extent > 0 && out->k.extent > 0;
  return has_axes && n_windows == (is_product ? 0 : 2) && (is_product || out->n_batch == 2);
}

// --- bounds of accesses ---

typedef enum operand { OPERAND_A, OPERAND_B, OPERAND_C } operand;

static int64_t stride_of(const kiln_library_call_axis *x, operand o) {
  return o == OPERAND_A ? x->a : o == OPERAND_B ? x->b : x->c;
}

static bool operand_fits(const kiln_library_call *c, const kiln_library_call_tensor *t, operand o,
                         uint32_t n_args, const uint64_t *bytes) {
  int64_t last = t->offset;
  bool ok = t->arg < (int64_t)n_args;
  for (int i = 0; i < c->n_batch; i++)
    reach(c->batch[i].extent, stride_of(&c->batch[i], o), &last, &ok);
  reach(c->m.extent, stride_of(&c->m, o), &last, &ok);
  reach(c->n.extent, stride_of(&c->n, o), &last, &ok);
  reach(c->k.extent, stride_of(&c->k, o), &last, &ok);
  for (int i = 0; c->kind == KILN_CALL_CONVOLUTION && i < 2; i++) {
    const kiln_library_call_window *w = &c->window[i];
    if (o == OPERAND_A) reach(w->in, w->a, &last, &ok);
    if (o == OPERAND_B) reach(w->kernel, w->b, &last, &ok);
    if (o == OPERAND_C) reach(w->out, w->c, &last, &ok);
  }
  return ok && (uint64_t)last < bytes[t->arg] / (uint64_t)kiln_library_call_type_bytes(t->type);
}

void kiln_library_call_extents(const kiln_library_call *c, int64_t extents[KILN_CALL_AXES]) {
  const bool is_product = c->kind == KILN_CALL_PRODUCT;
  for (int i = 0; i < KILN_CALL_BATCH; i++) extents[i] = i < c->n_batch ? c->batch[i].extent : 1;
  extents[KILN_CALL_M] = is_product ? c->m.extent : c->window[0].out;
  extents[KILN_CALL_W] = is_product ? 1 : c->window[1].out;
  extents[KILN_CALL_N] = c->n.extent;
}

static bool post_fits(const kiln_library_call *c, const kiln_library_call_post *p, uint32_t n_args,
                      const uint64_t *bytes) {
  int64_t last = p->tensor.offset, extents[KILN_CALL_AXES];
  bool ok = true;
  if (p->kind != KILN_POST_ADD) return true;
  kiln_library_call_extents(c, extents);
  for (int i = 0; i < KILN_CALL_AXES; i++) reach(extents[i], p->strides[i], &last, &ok);
  return ok && p->tensor.arg < (int64_t)n_args &&
         (uint64_t)last <
             bytes[p->tensor.arg] / (uint64_t)kiln_library_call_type_bytes(p->tensor.type);
}

bool kiln_library_call_fits(const kiln_library_call *c, uint32_t n_args, const uint64_t *bytes) {
  bool ok = operand_fits(c, &c->a, OPERAND_A, n_args, bytes) &&
            operand_fits(c, &c->b, OPERAND_B, n_args, bytes) &&
            operand_fits(c, &c->c, OPERAND_C, n_args, bytes);
  for (int i = 0; i < c->n_posts; i++) ok = ok && post_fits(c, &c->posts[i], n_args, bytes);
  return ok &&
         (c->workspace.bytes == 0 || (c->workspace.arg < (int64_t)n_args &&
                                      (uint64_t)c->workspace.bytes <= bytes[c->workspace.arg]));
}

bool kiln_library_call_is_f32(const kiln_library_call *c) {
  bool is = c->a.type == KILN_CALL_F32 && c->b.type == KILN_CALL_F32 && c->c.type == KILN_CALL_F32;
  for (int i = 0; i < c->n_posts; i++)
    is = is && (c->posts[i].kind != KILN_POST_ADD || c->posts[i].tensor.type == KILN_CALL_F32);
  return is;
}

bool kiln_library_call_is_bias(const kiln_library_call *c, const kiln_library_call_post *p) {
  int64_t extents[KILN_CALL_AXES];
  kiln_library_call_extents(c, extents);
  for (int i = 0; i < KILN_CALL_AXES; i++) {
    const bool is_group = c->kind == KILN_CALL_CONVOLUTION && i == 1;
    const int64_t want = i == KILN_CALL_N ? 1 : is_group ? c->n.extent : 0;
    if (extents[i] > 1 && p->strides[i] != want) return false;
  }
  return p->kind == KILN_POST_ADD;
}

bool kiln_library_call_walks_on(int64_t groups, int64_t by_group, int64_t channels,
                                int64_t by_channel) {
  return groups == 1 || channels == 1 || by_group == channels * by_channel;
}

// --- matrices ---

// The distance between the rows of a |rows| x |columns| matrix with these strides; 0 if it is not
// row-major.
static int64_t leading(int64_t rows, int64_t columns, int64_t by_row, int64_t by_column) {
  if (columns > 1 && by_column != 1) return 0;
  if (rows == 1) return columns;
  return by_row >= columns ? by_row : 0;
}

static bool find_matrix(int64_t rows, int64_t columns, int64_t by_row, int64_t by_column,
                        kiln_library_call_matrix *out) {
  const int64_t plain = leading(rows, columns, by_row, by_column),
                turned = leading(columns, rows, by_column, by_row);
  *out =
      plain ? (kiln_library_call_matrix){false, plain} : (kiln_library_call_matrix){true, turned};
  return plain || turned;
}

bool kiln_library_call_matrices(const kiln_library_call *c, kiln_library_call_matrix *a,
                                kiln_library_call_matrix *b, kiln_library_call_matrix *to) {
  return c->kind == KILN_CALL_PRODUCT && find_matrix(c->m.extent, c->k.extent, c->m.a, c->k.a, a) &&
         find_matrix(c->k.extent, c->n.extent, c->k.b, c->n.b, b) &&
         find_matrix(c->m.extent, c->n.extent, c->m.c, c->n.c, to) && !to->is_turned;
}

// --- parts ---

// The axis to split, by position; its extent, and the granularity.
typedef struct cut {
  int axis;
  int64_t extent, grain;
} cut;

// Each part packs an operand again, which costs least along the longer axis.
static cut find_cut(const kiln_library_call *c, int most) {
  cut best = {0, 0, 1};
  for (int i = 0; i < c->n_batch; i++)
    if (c->batch[i].extent > best.extent) best = (cut){i, c->batch[i].extent, 1};
  if (best.extent >= most) return best;
  if (c->kind == KILN_CALL_CONVOLUTION) return (cut){KILN_CALL_M, c->window[0].out, 1};
  return c->n.extent >= c->m.extent ? (cut){KILN_CALL_N, c->n.extent, GRAIN}
                                    : (cut){KILN_CALL_M, c->m.extent, GRAIN};
}

int kiln_library_call_parts(const kiln_library_call *c, int most) {
  const cut x = find_cut(c, most);
  const int64_t pieces = (x.extent + x.grain - 1) / x.grain;
  return pieces < most ? (int)pieces : most;
}

static void move(kiln_library_call *c, int axis, int64_t a, int64_t b, int64_t to, int64_t begin) {
  c->a.offset += a;
  c->b.offset += b;
  c->c.offset += to;
  for (int i = 0; i < c->n_posts; i++)
    c->posts[i].tensor.offset += c->posts[i].strides[axis] * begin;
}

static void cut_axis(kiln_library_call *c, kiln_library_call_axis *x, int axis, int64_t begin,
                     int64_t end) {
  x->extent = end - begin;
  move(c, axis, x->a * begin, x->b * begin, x->c * begin, begin);
}

// Restricts a window to rows [begin, end) of the result, and to the input rows that they need.
static void cut_window(kiln_library_call *c, int64_t begin, int64_t end) {
  kiln_library_call_window *w = &c->window[0];
  int64_t first = begin * w->stride - w->pad,
          last = (end - 1) * w->stride - w->pad + (w->kernel - 1) * w->dilation;
  w->out = end - begin;
  w->pad = first < 0 ? -first : 0;
  if (first < 0) first = 0;
  if (last > w->in - 1) last = w->in - 1;
  w->in = last - first + 1;
  move(c, KILN_CALL_M, w->a * first, 0, w->c * begin, begin);
}

kiln_library_call kiln_library_call_part(const kiln_library_call *call, int n, int part) {
  kiln_library_call c = *call;
  if (n <= 1) return c;
  const cut x = find_cut(call, n);
  const int64_t pieces = (x.extent + x.grain - 1) / x.grain;
  const int64_t begin = pieces * part / n * x.grain;
  int64_t end = pieces * (part + 1) / n * x.grain;
  if (end > x.extent) end = x.extent;
  if (x.axis < KILN_CALL_BATCH) cut_axis(&c, &c.batch[x.axis], x.axis, begin, end);
  else if (x.axis == KILN_CALL_N) cut_axis(&c, &c.n, x.axis, begin, end);
  else if (c.kind == KILN_CALL_PRODUCT) cut_axis(&c, &c.m, x.axis, begin, end);
  else cut_window(&c, begin, end);
  return c;
}
