// Parsing of text to syntax trees.
#ifndef KILN_TC_PARSER_H
#define KILN_TC_PARSER_H

#include "tc/ast.h"

// Parses the file |source->text|, which must outlive |*out|. After an error parsing resumes at the
// next definition; |*out| has invalid definitions marked |wrong|, if they have a name, and the
// valid ones.
//
// errors: source->status with line and caret at the first error of each definition
kiln_status kiln_tc_parse(const kiln_tc_source *source, kiln_tc_file *out);

// Parses |source->text| as a single expression.
kiln_status kiln_tc_parse_expression(const kiln_tc_source *source, kiln_tc_expr **out);

#endif
