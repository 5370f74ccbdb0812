// Source lines: which line of a kernel's loop program each line of derived text comes from.
//
// Each node of a loop program has its line number in the program's text. Copies keep it, so that a
// target can map each line that it writes (of device loops, source or assembly) to a line of the
// kernel.
#ifndef KILN_IR_LINES_H
#define KILN_IR_LINES_H

#include "ir/loop.h"

// A text whose line i comes from line lines[i] of the kernel; 0: unknown.
typedef struct kiln_lined {
  kiln_text text;
  KILN_VEC(int) lines;
} kiln_lined;
void kiln_lined_init(kiln_lined *l, kiln_arena *arena);
// Appends |text|, whole lines, all of which come from |line|.
void kiln_lined_add(kiln_lined *l, const char *text, int line);

// Text from byte |at| on comes from |line|.
typedef struct kiln_line_mark {
  int at, line;
} kiln_line_mark;
typedef struct kiln_line_marks {
  kiln_line_mark *data;
  int n, cap;
} kiln_line_marks;
// Appends |text|, with its marks in ascending order.
void kiln_lined_add_marked(kiln_lined *l, const char *text, const kiln_line_marks *marks);

// Assigns line numbers to the nodes of |l|, by their lines in its text as kiln_loops_print writes
// it.
void kiln_loops_number(kiln_loops *l);
// Appends the text of |l|, with the line numbers of its nodes.
void kiln_loops_print_lined(kiln_ctx *cx, const kiln_loops *l, kiln_lined *out);

#endif
