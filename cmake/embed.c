// A tool of the build: writes files as arrays of C, so that programs need not find them.
//
//     embed OUT.c a/page.html a/page.css ...
//
// gives `const char page_html[], page_css[]`, each with a NUL behind its end.
#include <ctype.h>
#include <stdio.h>
#include <string.h>

static const char *base_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash ? slash + 1 : path;
}

static int embed(FILE *out, const char *path) {
  FILE *f = fopen(path, "rb");
  if (!f) return fprintf(stderr, "%s: error: cannot be read\n", path), 1;
  fprintf(out, "\nextern const char ");
  for (int pass = 0; pass < 2; pass++) {
    for (const char *c = base_name(path); *c; c++)
      fputc(isalnum((unsigned char)*c) ? *c : '_', out);
    fprintf(out, pass ? "[] = {" : "[];\nconst char ");
  }
  int c, n = 0;
  for (; (c = fgetc(f)) != EOF; n++) fprintf(out, "%s%d,", n % 24 ? "" : "\n", (signed char)c);
  fprintf(out, "0};\n");
  return fclose(f);
}

int main(int argc, char **argv) {
  FILE *out = argc > 1 ? fopen(argv[1], "wb") : NULL;
  if (!out) return fprintf(stderr, "embed: error: OUT must be writable\n"), 1;
  fprintf(out, "// Made by the build.\n");
  for (int i = 2; i < argc; i++)
    if (embed(out, argv[i])) return 1;
  return fclose(out) != 0;
}
