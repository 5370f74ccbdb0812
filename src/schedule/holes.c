// Parsing and filling of holes in scripts, and splitting of schedule files into scripts.
#include "schedule/holes.h"

#include "ir/cursor.h"

#include <string.h>

typedef struct reader {
  kiln_ctx *cx;
  const char *file, *at;
  int line;
  const char *line_start;
  kiln_space *s;
  KILN_VEC(kiln_hole) holes;
  KILN_VEC(kiln_piece) pieces;
} reader;

static int column(const reader *r, const char *at) { return (int)(at - r->line_start) + 1; }

static kiln_status bad(const reader *r, const char *at, const char *must, const char *got) {
  const char *place =
      r->file
          ? kiln_arena_printf(&r->cx->perm, "%s:%d:%d", r->file, r->line, column(r, at))
          : kiln_arena_printf(&r->cx->perm, "schedule: line %d, column %d", r->line, column(r, at));
  return KILN_FAIL(r->cx->diag, KILN_BAD_INPUT, place, "hole: %s, got %s", must, got);
}

static const char *quote(const reader *r, const char *text, size_t n) {
  return kiln_arena_printf(&r->cx->perm, "\"%.*s\"", (int)(n < 40 ? n : 40), text);
}

// The position after the quoted name at |p|: after the closing quote, or at the end of the line.
static const char *skip_quoted(const char *p) {
  for (p++; *p && *p != '\n' && *p != '"'; p++)
    if (*p == '\\' && p[1] && p[1] != '\n') p++;
  return *p == '"' ? p + 1 : p;
}

static const char *skip_blanks(const char *p) {
  while (*p == ' ' || *p == '\t' || *p == '\r') p++;
  return p;
}

static bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
static bool is_name(char c) { return is_letter(c) || (c >= '0' && c <= '9'); }

bool kiln_hole_begins(const char *p) { return *p == '?' && (p[1] == '{' || is_letter(p[1])); }

static int find_hole(const reader *r, kiln_symbol name) {
  for (int i = 0; name && i < r->holes.n; i++)
    if (r->holes.data[i].name == name) return i;
  return -1;
}

// Reads `{a,b,c}` at r->at.
static kiln_status read_choices(reader *r, kiln_hole *h) {
  const char *open = r->at;
  KILN_VEC(const char *) choices = {0};
  do {
    const char *from = skip_blanks(r->at + 1);
    const char *to = *from == '"' ? skip_quoted(from) : from + strcspn(from, " \t\r\n,{}?#\"");
    if (to == from)
      return bad(r, from, "a choice must be a word",
                 *from && *from != '\n' ? quote(r, from, 1) : "the end of the line");
    const char *choice = kiln_arena_strndup(&r->cx->perm, from, (size_t)(to - from));
    KILN_VEC_PUSH(&r->cx->perm, &choices, choice);
    r->at = skip_blanks(to);
  } while (*r->at == ',');
  if (*r->at != '}')
    return bad(r, open, "choices must be words with ',' between and '}' behind them",
               *r->at && *r->at != '\n' ? quote(r, r->at, 1) : "the end of the line");
  r->at++;
  h->n = choices.n;
  h->choices = choices.data;
  return KILN_OK;
}

// Reads the hole at r->at and gives its number.
static kiln_status read_hole(reader *r, int *out) {
  const char *from = r->at++;
  size_t n = 0;
  while (is_name(r->at[n])) n++;
  kiln_hole h = {.line = r->line, .column = column(r, from)};
  if (n > 0) h.name = kiln_symbol_of_bytes(r->cx, r->at, n);
  *out = find_hole(r, h.name);
  r->at += n;
  if (*r->at != '{') {
    if (*out >= 0) return KILN_OK;
    return bad(r, from, "a name must have been given its choices before, as in ?tile{16,32}",
               quote(r, from, n + 1));
  }
  if (*out >= 0)
    return bad(r, from, "a name must be given its choices once", quote(r, from, n + 1));
  KILN_TRY(read_choices(r, &h));
  *out = r->holes.n;
  KILN_VEC_PUSH(&r->cx->perm, &r->holes, h);
  return KILN_OK;
}

static void push_piece(reader *r, const char *from, const char *to, int hole) {
  KILN_VEC_PUSH(&r->cx->perm, &r->pieces, (kiln_piece){from, (size_t)(to - from), hole});
}

static kiln_status read_all(reader *r) {
  const char *from = r->at;
  while (*r->at) {
    const char *at = r->at;
    if (*at == '#') {
      r->at += strcspn(at, "\n");
    } else if (*at == '"') {
      r->at = skip_quoted(at);
    } else if (kiln_hole_begins(at)) {
      int hole = -1;
      KILN_TRY(read_hole(r, &hole));
      push_piece(r, from, at, hole);
      from = r->at;
    } else {
      r->line += *at == '\n';
      if (*at == '\n') r->line_start = at + 1;
      r->at++;
    }
  }
  push_piece(r, from, r->at, -1);
  return KILN_OK;
}

kiln_status kiln_space_parse(kiln_ctx *cx, const char *script, const char *file, int first_line,
                             kiln_space **out) {
  *out = NULL;
  reader r = {.cx = cx, .file = file, .at = script, .line = first_line, .line_start = script};
  KILN_TRY(read_all(&r));
  kiln_space *s = KILN_NEW(&cx->perm, kiln_space);
  *s = (kiln_space){r.holes.n, r.holes.data, 1, r.pieces.n, r.pieces.data};
  for (int i = 0; i < s->n_holes; i++)
    if (__builtin_mul_overflow(s->total, (uint64_t)s->holes[i].n, &s->total)) s->total = UINT64_MAX;
  *out = s;
  return KILN_OK;
}

void kiln_space_at(const kiln_space *s, uint64_t k, int *out_choices) {
  for (int i = s->n_holes - 1; i >= 0; i--) {
    const uint64_t n = (uint64_t)s->holes[i].n;
    out_choices[i] = (int)(k % n);
    k /= n;
  }
}

void kiln_space_draw(const kiln_space *s, uint64_t seed, int *out_choices) {
  for (int i = 0; i < s->n_holes; i++) {
    seed += UINT64_C(0x9e3779b97f4a7c15); // splitmix64
    uint64_t x = seed;
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    out_choices[i] = (int)((x ^ x >> 31) % (uint64_t)s->holes[i].n);
  }
}

const char *kiln_space_fill(kiln_ctx *cx, const kiln_space *s, const int *choices) {
  kiln_text text;
  kiln_text_init(&text, &cx->perm);
  for (int i = 0; i < s->n_pieces; i++) {
    const kiln_piece *p = &s->pieces[i];
    kiln_text_add_bytes(&text, p->text, p->n);
    if (p->hole >= 0) kiln_text_add(&text, s->holes[p->hole].choices[choices[p->hole]]);
  }
  return text.data;
}

// --- sections ---

typedef struct cutter {
  kiln_ctx *cx;
  const char *file;
  int line;
  kiln_sections *out;
} cutter;

static kiln_status refuse(const cutter *c, const char *must, const char *got) {
  const char *place = kiln_arena_printf(&c->cx->perm, c->file ? "%s:%d" : "%s: line %d",
                                        c->file ? c->file : "schedule", c->line);
  return KILN_FAIL(c->cx->diag, KILN_BAD_INPUT, place, "kernel: %s, got %s", must, got);
}

// Reads the name, bare or quoted, after the word `kernel`; nothing may follow it.
static kiln_status read_name(const cutter *c, const char *line, kiln_symbol *out) {
  const char *from = skip_blanks(line);
  const char *to = *from == '"' ? skip_quoted(from) : from + strcspn(from, " \t\r\n#\"");
  const char *behind = skip_blanks(to);
  if (from == to) return refuse(c, "must be followed by the kernel's name", "none");
  if (*behind && *behind != '\n' && *behind != '#')
    return refuse(c, "nothing must follow the kernel's name",
                  kiln_arena_printf(&c->cx->perm, "\"%.*s\"", (int)strcspn(behind, "\n"), behind));
  if (*from != '"') {
    *out = kiln_symbol_of_bytes(c->cx, from, (size_t)(to - from));
    return KILN_OK;
  }
  kiln_cursor cursor = {.cx = c->cx, .what = "schedule", .start = line, .at = from};
  KILN_TRY(kiln_cursor_name(&cursor, "the kernel's name", out, NULL));
  return *out ? KILN_OK : refuse(c, "must be followed by the kernel's name", "an empty one");
}

static bool is_heading(const char *line) {
  return strncmp(line, "kernel", 6) == 0 && strchr(" \t\r\n\"#", line[6]); // a '\0' as well
}

static kiln_status begin_section(cutter *c, const char *heading) {
  kiln_section s = {.first_line = c->line + 1};
  KILN_TRY(read_name(c, heading + 6, &s.kernel));
  const kiln_section *other = kiln_section_find(c->out, s.kernel);
  if (other)
    return refuse(c, "each kernel must have one script",
                  kiln_arena_printf(&c->cx->perm, "\"%s\" at line %d, too",
                                    kiln_symbol_text(c->cx, s.kernel), other->first_line - 1));
  KILN_VEC_PUSH(&c->cx->perm, c->out, s);
  return KILN_OK;
}

// Whether the lines hold a word.
static bool has_words(const char *from, const char *to) {
  while (from < to) {
    from += strspn(from, " \t\r\n");
    if (from < to && *from != '#') return true;
    from += strcspn(from, "\n");
  }
  return false;
}

static void end_section(cutter *c, const char *from, const char *to) {
  if (c->out->n == 0 && !has_words(from, to)) return;
  if (c->out->n == 0) KILN_VEC_PUSH(&c->cx->perm, c->out, (kiln_section){.first_line = 1});
  c->out->data[c->out->n - 1].text = kiln_arena_strndup(&c->cx->perm, from, (size_t)(to - from));
}

kiln_status kiln_sections_parse(kiln_ctx *cx, const char *text, const char *file,
                                kiln_sections *out) {
  *out = (kiln_sections){0};
  cutter c = {.cx = cx, .file = file, .line = 1, .out = out};
  const char *from = text, *at = text;
  for (; *at; c.line++) {
    const char *line = skip_blanks(at), *next = at + strcspn(at, "\n");
    next += *next == '\n';
    if (is_heading(line)) {
      end_section(&c, from, at);
      KILN_TRY(begin_section(&c, line));
      from = next;
    }
    at = next;
  }
  end_section(&c, from, at);
  return KILN_OK;
}

const kiln_section *kiln_section_find(const kiln_sections *s, kiln_symbol kernel) {
  for (int i = 0; i < s->n; i++)
    if (s->data[i].kernel == kernel) return &s->data[i];
  return NULL;
}
