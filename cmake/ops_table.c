// A tool of the build: writes the table of operators from the files of ops/. The .c files export
// their rows as kiln_op_NAME; the .tc files are embedded byte by byte, so that any character and
// any length is safe, with one row for each of their `onnx` lines.
//
//     ops_table OUT.c ops/a.c ops/b.tc ...
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int fails(const char *path, int line, const char *what) {
  if (line) fprintf(stderr, "%s:%d: error: %s\n", path, line, what);
  if (!line) fprintf(stderr, "%s: error: %s\n", path, what);
  return 1;
}

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static int has_suffix(const char *path, const char *suffix) {
  const size_t n = strlen(path), m = strlen(suffix);
  return n > m && strcmp(path + n - m, suffix) == 0;
}

// "ops/batch-norm.tc" as an identifier: batch_norm.
static void print_identifier(FILE *out, const char *path) {
  for (const char *c = base_name(path); *c && *c != '.'; c++)
    fputc(isalnum((unsigned char)*c) ? *c : '_', out);
}

static char *read_file(const char *path, size_t *out_n) {
  FILE *f = fopen(path, "rb");
  if (!f) return NULL;
  char *text = NULL;
  size_t n = 0, cap = 0, got = 0;
  do {
    if (n + 4096 > cap) {
      cap = cap ? cap * 2 : 1 << 16;
      char *grown = realloc(text, cap);
      if (!grown) break;
      text = grown;
    }
    got = fread(text + n, 1, 4095, f);
    n += got;
  } while (got > 0);
  fclose(f);
  if (text) text[n] = 0;
  *out_n = n;
  return text;
}

static void print_text(FILE *out, const char *path, const char *text, size_t n) {
  fprintf(out, "static const char text_");
  print_identifier(out, path);
  fprintf(out, "[] = {");
  for (size_t i = 0; i < n; i++) {
    if (i % 24 == 0) fputc('\n', out);
    fprintf(out, "%d,", (signed char)text[i]);
  }
  fprintf(out, "0};\n");
}

static const char *skip_blanks(const char *at) {
  while (*at == ' ' || *at == '\t') at++;
  return at;
}

// One row from `onnx NAME SINCE..[UNTIL] [domain "D"] ...`; the line begins at |at|.
static int print_row(FILE *out, const char *path, int line, const char *at) {
  at = skip_blanks(at + 4);
  const char *name = at;
  while (isalnum((unsigned char)*at) || *at == '_') at++;
  const int n_name = (int)(at - name);
  at = skip_blanks(at);
  char *end = NULL;
  const long since = strtol(at, &end, 10);
  if (n_name == 0 || end == at || strncmp(end, "..", 2) != 0)
    return fails(path, line, "onnx: must be `onnx NAME SINCE..[UNTIL]`");
  at = end + 2;
  const long until = isdigit((unsigned char)*at) ? strtol(at, &end, 10) : 0;
  if (until) at = end;
  at = skip_blanks(at);
  const char *domain = "";
  int n_domain = 0;
  if (strncmp(at, "domain", 6) == 0) {
    at = skip_blanks(at + 6);
    const char *close = *at == '"' ? strpbrk(at + 1, "\"\n\\") : NULL;
    if (!close || *close != '"') return fails(path, line, "domain: must be followed by \"D\"");
    domain = at + 1;
    n_domain = (int)(close - domain);
  }
  fprintf(out, "    {\"%.*s\", \"%.*s\", %ld, %ld, NULL, text_", n_domain, domain, n_name, name,
          since, until);
  print_identifier(out, path);
  fprintf(out, ", \"ops/%s\"},\n", base_name(path));
  return 0;
}

static int print_rows(FILE *out, const char *path, const char *text) {
  fprintf(out, "static const kiln_op rows_");
  print_identifier(out, path);
  fprintf(out, "[] = {\n");
  int line = 1;
  for (const char *at = text; at; line++) {
    if (strncmp(at, "onnx", 4) == 0 && (at[4] == ' ' || at[4] == '\t'))
      if (print_row(out, path, line, at) != 0) return 1;
    at = strchr(at, '\n');
    if (at) at++;
  }
  fprintf(out, "    {0}};\n");
  return 0;
}

static int print_tc(FILE *out, const char *path) {
  size_t n = 0;
  char *text = read_file(path, &n);
  if (!text) return fails(path, 0, "cannot be read");
  print_text(out, path, text, n);
  const int failed = print_rows(out, path, text);
  free(text);
  return failed;
}

int main(int argc, char **argv) {
  FILE *out = argc > 1 ? fopen(argv[1], "wb") : NULL;
  if (!out) return fails(argc > 1 ? argv[1] : "ops_table", 0, "cannot be written");
  fprintf(out, "// Made by the build from the files of ops/.\n#include \"fission/lower.h\"\n\n");
  for (int i = 2; i < argc; i++) {
    if (has_suffix(argv[i], ".tc")) {
      if (print_tc(out, argv[i]) != 0) return 1;
    } else {
      fprintf(out, "extern const kiln_op kiln_op_");
      print_identifier(out, argv[i]);
      fprintf(out, "[];\n");
    }
  }
  fprintf(out, "\nconst kiln_op *const kiln_ops[] = {\n");
  for (int i = 2; i < argc; i++) {
    fprintf(out, has_suffix(argv[i], ".tc") ? "    rows_" : "    kiln_op_");
    print_identifier(out, argv[i]);
    fprintf(out, ",\n");
  }
  fprintf(out, "    NULL};\n");
  return fclose(out) == 0 ? 0 : fails(argv[1], 0, "cannot be written");
}
