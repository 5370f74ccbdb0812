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
  target_link_libraries(${rt} PUBLIC ${CMAKE_DL_LIBS} pthread)
endforeach()
add_library(kiln_rt ALIAS kiln_rt_shared)
target_link_options(kiln_rt_shared PRIVATE -Wl,--as-needed)
if(NOT KILN_SANITIZE)
  target_link_options(kiln_rt_shared PRIVATE -Wl,--no-undefined)
  enable_testing()
  add_test(NAME runtime_library COMMAND ${CMAKE_COMMAND} -DLIBRARY=$<TARGET_FILE:kiln_rt_shared>
           -DARCHIVE=$<TARGET_FILE:kiln_rt_static>
           -P ${CMAKE_SOURCE_DIR}/cmake/check_runtime.cmake)
endif()

# The runtime under ThreadSanitizer: what sessions of one module share.
option(KILN_TSAN "also build the runtime's concurrency test with ThreadSanitizer" OFF)
find_library(CMOCKA cmocka)
if(KILN_TSAN AND CMOCKA)
  add_executable(runtime_tsan ${CMAKE_SOURCE_DIR}/test/unit/runtime/session_test.c ${rt_sources})
  target_include_directories(runtime_tsan PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
  target_compile_options(runtime_tsan PRIVATE -fsanitize=thread -g)
  target_link_options(runtime_tsan PRIVATE -fsanitize=thread)
  target_link_libraries(runtime_tsan PRIVATE ${CMOCKA} ${CMAKE_DL_LIBS} pthread m)
  enable_testing()
  add_test(NAME runtime_tsan COMMAND runtime_tsan)
endif()
