// Scripts with holes, and files of scripts.
//
// A hole `?{16,32,64}` stands for any of its choices, each one word; a named one,
// `?tile{16,32,64}`, may be used again as `?tile`, and both take the same value. Holes stand
// anywhere outside of quotes and comments, so also in a part of a word, as in `0/?tile`. A script
// with holes is a space of scripts.
//
// A schedule file holds scripts of several kernels: `kernel NAME` begins the one of that kernel;
// what stands before the first such line is the script without a name. Names are bare words, or
// quoted as loop programs print them.
#ifndef KILN_SCHEDULE_HOLES_H
#define KILN_SCHEDULE_HOLES_H

#include "support/ctx.h"

// Whether a hole begins at |p|; a '?' alone is an operator of conditions.
bool kiln_hole_begins(const char *p);

typedef struct kiln_hole {
  kiln_symbol name; // 0: none
  int line, column; // where its choices stand, from 1
  int n;
  const char *const *choices; // [n], as they are written
} kiln_hole;

// A piece of text and the hole behind it.
typedef struct kiln_piece {
  const char *text;
  size_t n;
  int hole; // -1: none
} kiln_piece;

typedef struct kiln_space {
  int n_holes;
  const kiln_hole *holes; // in the order of the text
  uint64_t total;         // the number of scripts, saturating at UINT64_MAX; 1 without holes
  int n_pieces;
  const kiln_piece *pieces;
} kiln_space;

// Finds the holes of a script that begins at line |first_line| of |file| (NULL: a script on its
// own).
//
// gives:  *out, in the ctx; it borrows |script|
// errors: KILN_BAD_INPUT, with line and column: a hole that is not closed, has no or empty choices,
//         is given choices twice, or is used before it has any
kiln_status kiln_space_parse(kiln_ctx *cx, const char *script, const char *file, int first_line,
                             kiln_space **out);
// The choices of script |k| below |total|, counted with the last hole running fastest. Room for
// n_holes.
void kiln_space_at(const kiln_space *s, uint64_t k, int *out_choices);
// Choices drawn at random, each hole uniformly; the same for the same seed.
void kiln_space_draw(const kiln_space *s, uint64_t seed, int *out_choices);
// The plain script of these choices, on the same lines; owned by the ctx.
const char *kiln_space_fill(kiln_ctx *cx, const kiln_space *s, const int *choices);

typedef struct kiln_section {
  kiln_symbol kernel; // 0: the script without a name
  const char *text;   // owned by the ctx
  int first_line;     // of |text| in the file, from 1
} kiln_section;

typedef struct kiln_sections {
  kiln_section *data; // in the order of the file; the one without a name is there if it has a line
  int n, cap;
} kiln_sections;

// Cuts the text of a schedule file. |file| (NULL: "schedule") is its name in messages.
//
// errors: KILN_BAD_INPUT: a kernel named twice, a `kernel` line without a name or with more
kiln_status kiln_sections_parse(kiln_ctx *cx, const char *text, const char *file,
                                kiln_sections *out);
const kiln_section *kiln_section_find(const kiln_sections *s, kiln_symbol kernel); // NULL: none

#endif
