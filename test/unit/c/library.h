// Test support: C text, compiled by the C compiler into this process.
#ifndef KILN_TEST_UNIT_C_LIBRARY_H
#define KILN_TEST_UNIT_C_LIBRARY_H

#include "support/text.h"
#include "unit/nests.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

// Warnings are errors. With KILN_TEST_KEEP set the text stays.
static inline void *library_load(const kiln_text *text) {
  char dir[] = "/tmp/kiln_c_XXXXXX", path[64], command[256];
  assert_non_null(mkdtemp(dir));
  snprintf(path, sizeof path, "%s/k.c", dir);
  FILE *f = fopen(path, "w");
  assert_non_null(f);
  fwrite(text->data, 1, (size_t)text->n, f);
  fclose(f);
  snprintf(command, sizeof command,
           "gcc -std=c17 -Wall -Wextra -Werror -O2 -fPIC -shared -o %s/k.so %s/k.c -lm", dir, dir);
  if (system(command)) fail_msg("must compile: %s", command);
  snprintf(command, sizeof command, "%s/k.so", dir);
  void *handle = dlopen(command, RTLD_NOW | RTLD_LOCAL);
  if (!handle) fail_msg("%s", dlerror());
  unlink(command);
  if (!getenv("KILN_TEST_KEEP")) {
    unlink(path);
    rmdir(dir);
  }
  return handle;
}

// A kernel of a library, whose nests are kKERNEL_NEST.
typedef struct library_kernel {
  void *handle;
  int kernel;
} library_kernel;

static inline nest_fn library_nest(void *from, int nest) {
  const library_kernel *k = (const library_kernel *)from;
  char name[32];
  snprintf(name, sizeof name, "k%d_%d", k->kernel, nest);
  void *p = dlsym(k->handle, name);
  nest_fn run = NULL;
  memcpy(&run, &p, sizeof run);
  return run;
}

#endif
