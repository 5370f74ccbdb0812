# The operators: every ops/NAME.c exports `const kiln_op kiln_op_NAME[]`, every ops/NAME.tc is embedded as text. The table
# kiln_ops of both is made here, so adding an operator is adding a file.
file(GLOB kiln_op_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ops/*.c)
file(GLOB kiln_op_texts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/ops/*.tc)
set(kiln_op_table ${PROJECT_BINARY_DIR}/ops_table_made.c)

add_executable(ops_table ${PROJECT_SOURCE_DIR}/cmake/ops_table.c)
# The list of files is an input too: a removed file must leave the table.
string(REPLACE ";" "\n" kiln_op_list "${kiln_op_sources};${kiln_op_texts}\n")
file(GENERATE OUTPUT ${PROJECT_BINARY_DIR}/ops_files.txt CONTENT "${kiln_op_list}")
add_custom_command(
  OUTPUT ${kiln_op_table}
  COMMAND ops_table ${kiln_op_table} ${kiln_op_sources} ${kiln_op_texts}
  DEPENDS ops_table ${kiln_op_texts} ${PROJECT_BINARY_DIR}/ops_files.txt
  COMMENT "Making the table of operators"
  VERBATIM)
add_library(kiln_ops STATIC ${kiln_op_sources} ${kiln_op_table})
target_include_directories(kiln_ops PUBLIC ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
