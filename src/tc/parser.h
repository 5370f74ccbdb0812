// Text to syntax tree.
#ifndef KILN_TC_PARSER_H
#define KILN_TC_PARSER_H

#include "tc/ast.h"

// Parses the file |source->text|, which must outlive |*out|. Behind a mistake the next definition
// is parsed; |*out| then holds the definition as |wrong|, when it has a name, and those without
// mistakes.
//
// errors: source->status with line and caret at the first mistake of each definition
kiln_status kiln_tc_parse(const kiln_tc_source *source, kiln_tc_file *out);

// Parses one expression that fills |source->text|.
kiln_status kiln_tc_parse_expression(const kiln_tc_source *source, kiln_tc_expr **out);

#endif
