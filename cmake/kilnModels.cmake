# kiln_add_library(NAME MODEL FILE [OPTIONS...]): the model as a static library (docs/guide/static-libraries.md), which is made
# with the build. A target that links NAME includes NAME.h and calls NAME_run.
function(kiln_add_library name)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "MODEL" "OPTIONS")
  get_filename_component(model ${arg_MODEL} ABSOLUTE)
  set(folder ${CMAKE_CURRENT_BINARY_DIR}/kiln)
  file(MAKE_DIRECTORY ${folder})
  add_custom_command(OUTPUT ${folder}/${name}.a ${folder}/${name}.h DEPENDS ${model} kiln::command VERBATIM
                     COMMAND kiln::command compile ${model} -o ${folder}/${name}.a ${arg_OPTIONS})
  add_custom_target(${name}_library DEPENDS ${folder}/${name}.a ${folder}/${name}.h)
  add_library(${name} STATIC IMPORTED GLOBAL)
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${folder}/${name}.a
                        INTERFACE_INCLUDE_DIRECTORIES ${folder} INTERFACE_LINK_LIBRARIES m)
  add_dependencies(${name} ${name}_library)
endfunction()
