// Output files: their names, and the check that none is an input file.
#include "kiln.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

// --- names of outputs ---

enum { NAME_MOST = 255, SUFFIX_ROOM = 16, NUMBER_ROOM = 24 };

// Whether the character is itself in a file's name. '~' precedes a number after a name, '%' the
// code of a byte.
static bool is_plain(unsigned char c, bool is_first) {
  return c > 0x20 && c != 0x7f && !strchr("/\\:*?\"<>|%~", c) && !(is_first && c == '.');
}

// Encodes |name|, with special bytes as "%2F": at most |room| bytes, whole characters. |out_whole|:
// nothing was cut.
static size_t encode(const char *name, size_t room, char *out, bool *out_whole) {
  static const char digits[] = "0123456789ABCDEF";
  const unsigned char *at = (const unsigned char *)name;
  size_t n = 0;
  for (bool is_first = true; *at; is_first = false) {
    size_t k = 1; // the character's bytes
    while (at[0] >= 0xc0 && k < 4 && (at[k] & 0xc0) == 0x80) k++;
    const bool plain = is_plain(*at, is_first);
    if (n + (plain ? k : 3) > room) break;
    if (!plain) {
      const char code[] = {'%', digits[*at >> 4], digits[*at & 15]};
      memcpy(out + n, code, sizeof code);
      n += sizeof code, at++;
    } else {
      memcpy(out + n, at, k);
      n += k, at += k;
    }
  }
  *out_whole = *at == 0;
  return n;
}

static bool is_repeated(const kiln_module *m, size_t i) {
  const char *name = kiln_module_output(m, i).name;
  for (size_t k = 0; k < i; k++)
    if (!strcmp(kiln_module_output(m, k).name, name)) return true;
  return false;
}

void output_file_name(const kiln_module *m, size_t i, char out[OUTPUT_NAME_ROOM]) {
  const char *name = kiln_module_output(m, i).name;
  bool is_whole = false;
  size_t n = encode(name, NAME_MOST - SUFFIX_ROOM, out, &is_whole);
  if (!is_whole || n == 0 || is_repeated(m, i)) { // the number makes it unique
    n = encode(name, NAME_MOST - SUFFIX_ROOM - NUMBER_ROOM, out, &is_whole);
    n += (size_t)snprintf(out + n, NUMBER_ROOM, "~%zu", i);
  }
  snprintf(out + n, SUFFIX_ROOM, ".npy");
}

// --- input files must not be overwritten ---

static bool is_same_file(const char *a, const char *b) {
  struct stat x, y;
  return a && b && stat(a, &x) == 0 && stat(b, &y) == 0 && S_ISREG(x.st_mode) &&
         x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

// The file that value |i| of an option names; NULL after the last, and for options that name no
// input.
static const char *file_read(const options *o, const option_row *r, int i) {
  const char *text = option_text(o, r, i);
  if (!text || (r->values.form != FORM_READ && r->values.form != FORM_NAMED_FILE)) return NULL;
  return r->values.form == FORM_READ ? text : text + name_length(text) + 1;
}

static bool is_input_of(const options *o, const char *path) {
  bool is = false;
  for (int i = 0; i < o->args.n; i++) is |= is_same_file(path, o->args.at[i]);
  for (int i = 0; i < N_OPTION_ROWS; i++) {
    const char *file;
    for (int k = 0; o->given[i] && (file = file_read(o, &option_rows[i], k)) != NULL; k++)
      is |= is_same_file(path, file);
  }
  return is;
}

bool may_write(const options *o, const kiln_model *model, const char *path) {
  if (!path || (!is_input_of(o, path) && !(model && kiln_model_reads(model, path)))) return true;
  fprintf(stderr, "%s: error: output: must not be a file that is read\n", path);
  return false;
}

bool outputs_spare_inputs(const command *c, const options *o) {
  for (int i = 0; i < N_OPTION_ROWS; i++) {
    const option_row *r = &option_rows[i];
    if (r->values.form == FORM_WRITTEN && option_is_of(r, c) &&
        !may_write(o, NULL, option_text(o, r, 0)))
      return false;
  }
  return true;
}

bool write_text(const char *path, const char *what, const char *text) {
  errno = 0;
  FILE *f = path ? fopen(path, "we") : stdout;
  bool right = f && fputs(text, f) >= 0 && !fflush(f);
  if (f && f != stdout && fclose(f)) right = false;
  if (!right)
    fprintf(stderr, "%s: error: %s: must be writable, got: %s\n", path ? path : "stdout", what,
            strerror(errno));
  return right;
}

int end_output(int code) {
  errno = 0;
  const bool is_lost = ferror(stdout) != 0;
  if (fclose(stdout) == 0 && !is_lost) return code;
  if (code == EXIT_RIGHT)
    fprintf(stderr, "stdout: error: output: must be writable, got: %s\n",
            errno ? strerror(errno) : "a write that failed");
  return code == EXIT_RIGHT ? EXIT_WRONG : code;
}
