# What ships: libkiln_rt (loads and runs modules, without the compiler) and libkiln (everything).
target_link_libraries(kiln_runtime PUBLIC ${CMAKE_DL_LIBS} pthread)

file(GLOB runtime_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/runtime/*.c)
# Beside the runtime: messages, and single elements of tensors for those who fill and print them.
set(rt_sources ${runtime_sources} ${backend_sources} ${CMAKE_SOURCE_DIR}/src/support/diag.c
    ${CMAKE_SOURCE_DIR}/src/support/numbers.c ${CMAKE_SOURCE_DIR}/src/support/thread.c
    ${CMAKE_SOURCE_DIR}/src/support/printable.c ${CMAKE_SOURCE_DIR}/src/support/checksum.c ${CMAKE_SOURCE_DIR}/src/ir/dtype.c
    ${CMAKE_SOURCE_DIR}/src/analysis/element.c ${CMAKE_SOURCE_DIR}/src/driver/element.c)
foreach(kind SHARED STATIC)
  string(TOLOWER kiln_rt_${kind} rt)
  add_library(${rt} ${kind} ${rt_sources})
  set_target_properties(${rt} PROPERTIES OUTPUT_NAME kiln_rt)
  target_include_directories(${rt} PUBLIC ${CMAKE_SOURCE_DIR}/include PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(${rt} PUBLIC ${CMAKE_DL_LIBS} pthread $<$<BOOL:${KILN_COVERAGE}>:m>) # where rint is a call
endforeach()
add_library(kiln_rt ALIAS kiln_rt_shared)
target_link_options(kiln_rt_shared PRIVATE -Wl,--as-needed)
if(NOT KILN_SANITIZE AND NOT KILN_TSAN)
  target_link_options(kiln_rt_shared PRIVATE -Wl,--no-undefined)
  enable_testing()
  add_test(NAME runtime_library COMMAND ${CMAKE_COMMAND} -DLIBRARY=$<TARGET_FILE:kiln_rt_shared>
           -DARCHIVE=$<TARGET_FILE:kiln_rt_static>
           -P ${CMAKE_SOURCE_DIR}/cmake/check_runtime.cmake)
endif()
