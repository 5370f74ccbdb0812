// Sequences and optional values: lists of tensors that are resolved here, and leave no trace in the
// program. source: ONNX SequenceAt-11, SequenceConstruct-11, SequenceEmpty-11, SequenceErase-11,
// SequenceInsert-11, SequenceLength-11, SequenceMap-17, SplitToSequence-11, 24,
// ConcatFromSequence-11, Optional-15, OptionalGetElement-15, 18, OptionalHasElement-15, 18
#include "fission/traversal.h"
#include "support/integer.h"

enum { MAX_LENGTH = 1 << 16 };

static kiln_status wrong(kiln_visit *v, const char *what) {
  return KILN_FAIL(v->w->cx->diag, KILN_BAD_INPUT, v->lw->place, "%s", what);
}

static kiln_status want_sequence(kiln_visit *v, const kiln_sequence **out) {
  *out = v->lw->n_inputs > 0 ? v->in[0].sequence : NULL;
  return *out && (*out)->n >= 0 ? KILN_OK : wrong(v, "input 0: must be a sequence");
}

// Makes output 0 a sequence of |n| tensors, to be filled in.
static kiln_status make(kiln_visit *v, int64_t n, kiln_tensor ***out_at) {
  if (n > MAX_LENGTH)
    return KILN_FAIL(v->w->cx->diag, KILN_UNSUPPORTED, v->lw->place,
                     "sequences: must have at most %d tensors, got %" PRId64, MAX_LENGTH, n);
  kiln_arena *arena = &v->w->cx->perm;
  kiln_sequence *s = KILN_NEW(arena, kiln_sequence);
  *out_at = KILN_NEW_ARRAY(arena, kiln_tensor *, n);
  *s = (kiln_sequence){(int)n, *out_at};
  v->out[0].sequence = s;
  return KILN_OK;
}

// The optional position in input |i|, in [0, end].
static kiln_status read_position(kiln_visit *v, int i, int64_t n, int64_t end, int64_t otherwise,
                                 int64_t *out) {
  kiln_tensor *t = kiln_lower_in(v->lw, i);
  *out = otherwise;
  if (t && !kiln_tensor_known(v->lw, t, out))
    return KILN_FAIL(v->w->cx->diag, KILN_UNSUPPORTED, v->lw->place,
                     "input %d (the position): must be known when compiling", i);
  if (*out < 0) *out += n;
  if (*out >= 0 && *out <= end) return KILN_OK;
  return KILN_FAIL(v->w->cx->diag, KILN_BAD_INPUT, v->lw->place,
                   "the position: must lie in the sequence of %" PRId64 " tensors", n);
}

static kiln_status sequence_empty(kiln_visit *v) {
  kiln_tensor **at = NULL;
  return make(v, 0, &at);
}

static kiln_status sequence_construct(kiln_visit *v) {
  kiln_tensor **at = NULL;
  KILN_TRY(make(v, v->lw->n_inputs, &at));
  for (int i = 0; i < v->lw->n_inputs; i++)
    if (!(at[i] = v->lw->inputs[i])) return wrong(v, "inputs: must be tensors");
  return KILN_OK;
}

static kiln_status sequence_insert(kiln_visit *v) {
  const kiln_sequence *s = NULL;
  kiln_tensor **at = NULL, *x = kiln_lower_in(v->lw, 1);
  int64_t position = 0;
  KILN_TRY(want_sequence(v, &s));
  KILN_TRY(read_position(v, 2, s->n, s->n, s->n, &position));
  if (!x) return wrong(v, "input 1: must be a tensor");
  KILN_TRY(make(v, s->n + 1, &at));
  for (int i = 0; i <= s->n; i++)
    at[i] = i < position ? s->at[i] : i == position ? x : s->at[i - 1];
  return KILN_OK;
}

static kiln_status sequence_erase(kiln_visit *v) {
  const kiln_sequence *s = NULL;
  kiln_tensor **at = NULL;
  int64_t position = 0;
  KILN_TRY(want_sequence(v, &s));
  KILN_TRY(read_position(v, 1, s->n, s->n - 1, -1, &position));
  KILN_TRY(make(v, s->n - 1, &at));
  for (int i = 0; i < s->n - 1; i++) at[i] = s->at[i < position ? i : i + 1];
  return KILN_OK;
}

static kiln_status sequence_at(kiln_visit *v) {
  const kiln_sequence *s = NULL;
  int64_t position = 0;
  KILN_TRY(want_sequence(v, &s));
  KILN_TRY(read_position(v, 1, s->n, s->n - 1, 0, &position));
  v->out[0].tensor = s->at[position];
  return KILN_OK;
}

static kiln_status sequence_length(kiln_visit *v) {
  const kiln_sequence *s = NULL;
  KILN_TRY(want_sequence(v, &s));
  const int64_t n = s->n;
  v->out[0].tensor = kiln_lower_make_const(v->lw, NULL, KILN_I64, 0, NULL, &n);
  return KILN_OK;
}

// The lengths of the parts of |extent|: |sizes|, or equal parts if a single size is given.
static kiln_status read_parts(kiln_visit *v, int64_t extent, bool *out_single, int *out_n,
                              int64_t **out_sizes) {
  int n = -1;
  const int64_t *sizes = NULL, one = 1;
  KILN_TRY(kiln_lower_const_ints(v->lw, 1, &n, &sizes));
  *out_single = n < 0;
  const bool listed = n >= 0 && v->lw->inputs[1]->rank > 0;
  if (n < 0) sizes = &one;
  if (!listed && sizes[0] < 1) return wrong(v, "split: must be positive");
  const int64_t count = listed ? n : kiln_divide_up(extent, sizes[0]);
  if (count > MAX_LENGTH) return wrong(v, "split: must make at most 65536 tensors");
  *out_n = (int)count;
  *out_sizes = KILN_NEW_ARRAY(&v->w->cx->perm, int64_t, count);
  for (int64_t i = 0; i < count; i++)
    (*out_sizes)[i] = listed          ? sizes[i]
                      : i < count - 1 ? sizes[0]
                                      : extent - (count - 1) * sizes[0];
  return KILN_OK;
}

static kiln_status squeeze(kiln_visit *v, int axis, kiln_tensor **io) {
  const kiln_expr *shape[KILN_MAX_RANK];
  for (int i = 0; i < (*io)->rank; i++)
    if (i != axis) shape[i - (i > axis)] = (*io)->shape[i];
  *io = kiln_lower_reshape(v->lw, *io, (*io)->rank - 1, shape);
  return KILN_OK;
}

static kiln_status split_to_sequence(kiln_visit *v) {
  kiln_lower *lw = v->lw;
  kiln_tensor **at = NULL;
  int64_t given = 0, keep = 1, extent = 0, *sizes = NULL;
  int axis = 0, n = 0;
  bool single = false;
  KILN_TRY(kiln_lower_want_inputs(lw, 1, 2));
  KILN_TRY(kiln_lower_int(lw, "axis", 0, &given));
  KILN_TRY(kiln_lower_int(lw, "keepdims", 1, &keep));
  KILN_TRY(kiln_lower_axis(lw, given, lw->inputs[0]->rank, false, &axis));
  KILN_TRY(kiln_lower_extent(lw, lw->inputs[0], axis, &extent));
  KILN_TRY(read_parts(v, extent, &single, &n, &sizes));
  KILN_TRY(make(v, n, &at));
  const int64_t shape[] = {n};
  kiln_tensor *inputs[] = {lw->inputs[0],
                           kiln_lower_make_const(lw, "split", KILN_I64, 1, shape, sizes)};
  const kiln_attr along = {
      .name = kiln_symbol_of(lw->cx, "axis"), .kind = KILN_ATTR_INT, .u = {.i = axis}};
  const kiln_lower_callee split = {"", "Split", 13, 2, inputs, 1, &along};
  KILN_TRY(kiln_lower_call(lw, &split, n, at));
  for (int i = 0; single && !keep && i < n; i++) KILN_TRY(squeeze(v, axis, &at[i]));
  return KILN_OK;
}

static kiln_status concat_from_sequence(kiln_visit *v) {
  const kiln_sequence *s = NULL;
  int64_t axis = 0, is_new = 0;
  KILN_TRY(want_sequence(v, &s));
  KILN_TRY(kiln_lower_int(v->lw, "axis", 0, &axis));
  KILN_TRY(kiln_lower_int(v->lw, "new_axis", 0, &is_new));
  if (s->n == 0) return wrong(v, "input 0: must have at least one tensor");
  if (is_new) return kiln_lower_stack(v->lw, s->n, s->at, axis, &v->out[0].tensor);
  const kiln_attr along = {
      .name = kiln_symbol_of(v->w->cx, "axis"), .kind = KILN_ATTR_INT, .u = {.i = axis}};
  const kiln_lower_callee concat = {"", "Concat", 13, s->n, s->at, 1, &along};
  return kiln_lower_call(v->lw, &concat, 1, &v->out[0].tensor);
}

static kiln_status sequence_map(kiln_visit *v) {
  const kiln_sequence *first = NULL;
  const kiln_graph *body = NULL;
  const int n_in = v->lw->n_inputs, n_out = v->lw->n_outputs;
  kiln_arena *arena = &v->w->cx->perm;
  KILN_TRY(want_sequence(v, &first));
  KILN_TRY(kiln_visit_graph(v, "body", &body));
  kiln_held *in = KILN_NEW_ARRAY(arena, kiln_held, n_in);
  kiln_held *out = KILN_NEW_ARRAY(arena, kiln_held, n_out);
  kiln_tensor ***made = KILN_NEW_ARRAY(arena, kiln_tensor **, n_out);
  for (int o = 0; o < n_out; o++) made[o] = KILN_NEW_ARRAY(arena, kiln_tensor *, first->n);
  for (int k = 0; k < first->n; k++) {
    for (int i = 0; i < n_in; i++) {
      in[i] = v->in[i];
      if (!in[i].sequence) continue;
      if (in[i].sequence->n != first->n) return wrong(v, "sequences: must have one length");
      in[i] = kiln_held_tensor(v->in[i].sequence->at[k]);
    }
    KILN_TRY(kiln_visit_body(v, body, n_in, in, n_out, out));
    for (int o = 0; o < n_out; o++)
      if (!(made[o][k] = out[o].tensor)) return wrong(v, "body: its outputs must be tensors");
  }
  for (int o = 0; o < n_out; o++) {
    kiln_sequence *s = KILN_NEW(arena, kiln_sequence);
    *s = (kiln_sequence){first->n, made[o]};
    v->out[o].sequence = s;
  }
  return KILN_OK;
}

// --- optional values ---

static const kiln_sequence none = {-1, NULL};

static bool has_element(const kiln_visit *v) {
  return v->lw->n_inputs > 0 && kiln_holds(&v->in[0]) && v->in[0].sequence != &none;
}

static kiln_status optional(kiln_visit *v) {
  v->out[0] = has_element(v) ? v->in[0] : (kiln_held){.sequence = &none};
  return KILN_OK;
}

static kiln_status optional_get_element(kiln_visit *v) {
  if (!has_element(v))
    return wrong(v, "input 0: must have an element, got an empty optional value");
  v->out[0] = v->in[0];
  return KILN_OK;
}

static kiln_status optional_has_element(kiln_visit *v) {
  const bool has = has_element(v);
  v->out[0].tensor = kiln_lower_make_const(v->lw, NULL, KILN_BOOL, 0, NULL, &has);
  return KILN_OK;
}

static kiln_status identity(kiln_visit *v) {
  v->out[0] = v->in[0];
  return KILN_OK;
}

kiln_visitor kiln_find_sequence(const kiln_lower *lw, const kiln_held *in) {
  static const struct {
    const char *name;
    kiln_visitor lower;
  } rows[] = {
      {"SequenceEmpty", sequence_empty},
      {"SequenceConstruct", sequence_construct},
      {"SequenceInsert", sequence_insert},
      {"SequenceErase", sequence_erase},
      {"SequenceAt", sequence_at},
      {"SequenceLength", sequence_length},
      {"SequenceMap", sequence_map},
      {"SplitToSequence", split_to_sequence},
      {"ConcatFromSequence", concat_from_sequence},
      {"Optional", optional},
      {"OptionalGetElement", optional_get_element},
      {"OptionalHasElement", optional_has_element},
  };
  for (size_t i = 0; i < KILN_LEN(rows); i++)
    if (kiln_lower_is(lw, "", rows[i].name)) return rows[i].lower;
  const bool moves = lw->n_inputs == 1 && in[0].sequence && kiln_lower_is(lw, "", "Identity");
  return moves ? identity : NULL;
}
