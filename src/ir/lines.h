// Lines of a kernel's loops, carried into all that is made of them.
//
// Each node of a loop program says its line in the program's text. Copies keep it, so that a target
// can say of each line that it writes (of device loops, of source, of assembly) which line of the
// kernel it is made of.
#ifndef KILN_IR_LINES_H
#define KILN_IR_LINES_H

#include "ir/loop.h"

// A text whose line i is made of line lines[i] of the kernel; 0: of none in particular.
typedef struct kiln_lined {
  kiln_text text;
  KILN_VEC(int) lines;
} kiln_lined;
void kiln_lined_init(kiln_lined *l, kiln_arena *arena);
// Adds |text|, lines with their ends, all of them made of |line|.
void kiln_lined_add(kiln_lined *l, const char *text, int line);

// From byte |at| of a text on, what is written is made of |line|.
typedef struct kiln_line_mark {
  int at, line;
} kiln_line_mark;
typedef struct kiln_line_marks {
  kiln_line_mark *data;
  int n, cap;
} kiln_line_marks;
// Adds |text|, with marks by place.
void kiln_lined_add_marked(kiln_lined *l, const char *text, const kiln_line_marks *marks);

// Numbers the nodes of |l| by their lines in its text, as kiln_loops_print writes it.
void kiln_loops_number(kiln_loops *l);
// Adds the text of |l|, whose nodes say the lines that they were made of.
void kiln_loops_print_lined(kiln_ctx *cx, const kiln_loops *l, kiln_lined *out);

#endif
