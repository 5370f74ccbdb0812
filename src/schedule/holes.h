// Scripts with holes, and files of several scripts.
//
// A hole `?{16,32,64}` stands for any of its choices, each one word. A named hole,
// `?tile{16,32,64}`, may be used again as `?tile`; all uses take the same choice. Holes may stand
// anywhere outside of quotes and comments, also inside a word, as in `0/?tile`. A script with holes
// is a search space of scripts.
//
// A schedule file holds scripts of several kernels: the line `kernel NAME` begins the script of
// that kernel; text before the first of these lines is the unnamed script. Names are bare words, or
// quoted as loop programs print them.
#ifndef KILN_SCHEDULE_HOLES_H
#define KILN_SCHEDULE_HOLES_H

#include "support/ctx.h"

// Whether a hole begins at |p|; a '?' alone is the operator of conditional expressions.
bool kiln_hole_begins(const char *p);

typedef struct kiln_hole {
  kiln_symbol name; // 0: none
  int line, column; // position of its choices, from 1
  int n;
  const char *const *choices; // [n], as they are written
} kiln_hole;

// Literal text and the hole after it.
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

// Finds the holes of a script that begins at line |first_line| of |file| (NULL: it is in no file).
//
// gives:  *out, in the ctx; it borrows |script|
// errors: KILN_BAD_INPUT, with line and column: a hole is not closed, has no or empty choices, gets
//         choices twice, or is used before it has any
kiln_status kiln_space_parse(kiln_ctx *cx, const char *script, const char *file, int first_line,
                             kiln_space **out);
// The choices of script number |k| < |total|; the last hole varies fastest. |out_choices| has room
// for n_holes.
void kiln_space_at(const kiln_space *s, uint64_t k, int *out_choices);
// Choices drawn at random, each hole uniformly; equal seeds draw equal choices.
void kiln_space_draw(const kiln_space *s, uint64_t seed, int *out_choices);
// The script with these choices filled in, on the same lines; owned by the ctx.
const char *kiln_space_fill(kiln_ctx *cx, const kiln_space *s, const int *choices);

typedef struct kiln_section {
  kiln_symbol kernel; // 0: the script without a name
  const char *text;   // owned by the ctx
  int first_line;     // of |text| in the file, from 1
} kiln_section;

typedef struct kiln_sections {
  kiln_section *data; // in the order of the file; includes the unnamed script if it has a line
  int n, cap;
} kiln_sections;

// Splits the text of a schedule file. |file| (NULL: "schedule") is its name in messages.
//
// errors: KILN_BAD_INPUT: a kernel is named twice, or a `kernel` line has no name or more words
kiln_status kiln_sections_parse(kiln_ctx *cx, const char *text, const char *file,
                                kiln_sections *out);
const kiln_section *kiln_section_find(const kiln_sections *s, kiln_symbol kernel); // NULL: none

#endif
