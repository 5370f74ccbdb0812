// Backends: who else offers kernels for parts of a program, beside the families of the tile graph. A
// library of matrix products is one: where its kernel costs less, it is used just there.
//
// A backend looks at the program of a kernel as it is extracted (tile/tile.h): parameters a0.., results z0..
// and y, views of them by strides. What it offers costs what it says; nothing is compiled for it until it is
// chosen.
#ifndef KILN_ORCHESTRATE_BACKEND_H
#define KILN_ORCHESTRATE_BACKEND_H

#include "target/target.h"
#include "tile/tile.h"

typedef struct kiln_backend {
  const char *name; // "openblas"
  // Whether it runs kernels on |m| at all, as far as can be seen without running one.
  bool (*is_there)(const kiln_machine *m);
  // What its kernel for |p|, a group of |kind|, takes.
  //
  // gives: nanoseconds of one launch on |n_threads|, that included; infinite: it has no kernel for that
  double (*offer)(kiln_ctx *cx, const kiln_machine *m, int n_threads, kiln_group_kind kind,
                  const kiln_program *p);
} kiln_backend;

typedef struct kiln_backends {
  int n;
  const kiln_backend *const *all;
} kiln_backends;

#endif
