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
kiln_llvm_config(llvm_shared --link-shared --libs)
if(NOT llvm_libs)
  set(llvm_libs ${llvm_shared})
  set(llvm_system)
endif()

# Memory that is out is a status, in LLVM as well (support/reserve.h): its allocations, and those of the C++ library that it
# is linked with, which is a static one so, go through Kiln's functions.
set(cxx_library stdc++)
if(KILN_LLVM_STATIC AND NOT KILN_SANITIZE AND NOT KILN_TSAN)
  execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=libstdc++.a OUTPUT_VARIABLE static_cxx
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  if(IS_ABSOLUTE "${static_cxx}")
    set(cxx_library ${static_cxx})
    target_compile_definitions(kiln_support PRIVATE KILN_WRAPS_MALLOC)
    foreach(function malloc calloc realloc free aligned_alloc posix_memalign strdup)
      target_link_options(kiln_support INTERFACE -Wl,--wrap=${function})
    endforeach()
  endif()
endif()

# Executables with the property KILN_SHARED_LLVM take the shared library: some 200 tests with an LLVM of their own each
# were 70 MB and seconds of linking apiece.
target_include_directories(kiln_cpu SYSTEM PRIVATE ${llvm_include})
set(is_shared "$<BOOL:$<TARGET_PROPERTY:KILN_SHARED_LLVM>>")
target_link_libraries(kiln_cpu PUBLIC ${llvm_ldflags} "$<IF:${is_shared},${llvm_shared},${llvm_libs}>" -Wl,--as-needed
                      "$<$<NOT:${is_shared}>:${llvm_system}>" "$<IF:${is_shared},stdc++,${cxx_library}>" pthread)
