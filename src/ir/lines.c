// Lines of loop programs and of texts made of them.
#include "ir/lines.h"

#include <string.h>

void kiln_lined_init(kiln_lined *l, kiln_arena *arena) {
  *l = (kiln_lined){0};
  kiln_text_init(&l->text, arena);
}

static void add_line(kiln_lined *l, const char *line, size_t n, int of) {
  kiln_text_add_bytes(&l->text, line, n);
  KILN_VEC_PUSH(l->text.arena, &l->lines, of);
}

// The length of the first line including its newline.
static size_t line_bytes(const char *text) {
  const size_t n = strcspn(text, "\n");
  return n + (text[n] == '\n');
}

void kiln_lined_add(kiln_lined *l, const char *text, int line) {
  for (size_t n; (n = line_bytes(text)) > 0; text += n) add_line(l, text, n, line);
}

void kiln_lined_add_marked(kiln_lined *l, const char *text, const kiln_line_marks *marks) {
  const char *at = text;
  int k = 0, line = 0;
  for (size_t n; (n = line_bytes(at)) > 0; at += n) {
    // marks after the line's beginning refer to text at its end, as of a statement's last part
    for (; k < marks->n && marks->data[k].at <= at - text; k++) line = marks->data[k].line;
    add_line(l, at, n, line);
  }
}

// --- loops ---

static bool has_body(const kiln_loop *l) {
  return l->kind == KILN_LOOP_FOR || l->kind == KILN_LOOP_IF || l->kind == KILN_LOOP_ALLOC ||
         (l->kind == KILN_LOOP_DEVICE && l->body);
}

static int number(kiln_loop *l, int line) {
  for (; l; l = l->next) {
    l->line = line++;
    if (has_body(l)) line = number(l->body, line) + 1; // the closing brace
  }
  return line;
}

void kiln_loops_number(kiln_loops *l) { number(l->body, l->buffers.n + 2); }

typedef struct walk {
  kiln_lined *out;
  const char *at; // the next line of the text
} walk;

static void take_line(walk *w, int of) {
  const size_t n = line_bytes(w->at);
  add_line(w->out, w->at, n, of);
  w->at += n;
}

static void take_nest(walk *w, const kiln_loop *l) {
  for (; l; l = l->next) {
    take_line(w, l->line);
    if (!has_body(l)) continue;
    take_nest(w, l->body);
    take_line(w, l->line);
  }
}

void kiln_loops_print_lined(kiln_ctx *cx, const kiln_loops *l, kiln_lined *out) {
  kiln_text text;
  kiln_text_init(&text, &cx->perm);
  kiln_loops_print(cx, l, &text);
  walk w = {out, text.data};
  for (int i = 0; i <= l->buffers.n; i++) take_line(&w, 0);
  take_nest(&w, l->body);
  kiln_lined_add(out, w.at, 0);
}
