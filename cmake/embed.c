// A tool of the build: writes files as arrays of C, so that programs need not find them.
//
//     embed OUT.c a/page.html a/page.css ... --join page_js a/one.js a/two.js ...
//
// gives `const char page_html[], page_css[], page_js[]`, each with a NUL behind its end.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static void print_identifier(FILE *out, const char *name) {
  for (; *name; name++) fputc(isalnum((unsigned char)*name) ? *name : '_', out);
}

static void begin(FILE *out, const char *name) {
  fprintf(out, "\nextern const char ");
  print_identifier(out, name);
  fprintf(out, "[];\nconst char ");
  print_identifier(out, name);
  fprintf(out, "[] = {");
}

static int put_file(FILE *out, const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) return fprintf(stderr, "%s: error: cannot be read\n", path), 1;
  for (int c, n = 0; (c = fgetc(f)) != EOF; n++)
    fprintf(out, "%s%d,", n % 24 ? "" : "\n", (signed char)c);
  return fclose(f);
}

static void end(FILE *out) { fprintf(out, "0};\n"); }

static int put_all(FILE *out, int n, char **args) {
  int i = 0;
  for (; i < n && strcmp(args[i], "--join") != 0; i++) {
    begin(out, base_name(args[i]));
    if (put_file(out, args[i])) return 1;
    end(out);
  }
  if (i + 1 >= n) return 0;
  begin(out, args[i + 1]);
  for (i += 2; i < n; i++)
    if (put_file(out, args[i])) return 1;
  end(out);
  return 0;
}

int main(int argc, char **argv) {
  FILE *out = argc > 1 ? fopen(argv[1], "wb") : NULL;
  if (!out) return fprintf(stderr, "embed: error: OUT must be writable\n"), 1;
  fprintf(out, "// Made by the build.\n");
  if (put_all(out, argc - 2, argv + 2)) return 1;
  return fclose(out) != 0;
}
