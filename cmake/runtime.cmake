# What ships: libkiln_rt (loads and runs modules, without the compiler) and libkiln (everything).
if(TARGET kiln_runtime)
  target_link_libraries(kiln_runtime PUBLIC ${CMAKE_DL_LIBS} pthread)
endif()

file(GLOB runtime_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/runtime/*.c ${PROJECT_SOURCE_DIR}/src/runtime/*/*.c)
# Beside the runtime: messages, and single elements of tensors for those who fill and print them.
set(rt_sources ${runtime_sources} ${backend_sources} ${PROJECT_SOURCE_DIR}/src/support/diag.c
    ${PROJECT_SOURCE_DIR}/src/support/numbers.c ${PROJECT_SOURCE_DIR}/src/support/thread.c
    ${PROJECT_SOURCE_DIR}/src/support/printable.c ${PROJECT_SOURCE_DIR}/src/support/checksum.c ${PROJECT_SOURCE_DIR}/src/ir/dtype.c
    ${PROJECT_SOURCE_DIR}/src/analysis/element.c ${PROJECT_SOURCE_DIR}/src/model/element.c)
foreach(kind SHARED STATIC)
  string(TOLOWER kiln_rt_${kind} rt)
  add_library(${rt} ${kind} ${rt_sources})
  set_target_properties(${rt} PROPERTIES OUTPUT_NAME kiln_rt)
  target_include_directories(${rt} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
                             PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${rt} PUBLIC ${CMAKE_DL_LIBS} pthread)
endforeach()
set_target_properties(kiln_rt_shared PROPERTIES EXPORT_NAME rt VERSION ${KILN_ABI} SOVERSION ${KILN_ABI})
set_target_properties(kiln_rt_static PROPERTIES EXPORT_NAME rt_static)
add_library(kiln::rt ALIAS kiln_rt_shared)
add_library(kiln::rt_static ALIAS kiln_rt_static)
target_link_options(kiln_rt_shared PRIVATE -Wl,--as-needed -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map)
if(NOT KILN_SANITIZE AND NOT KILN_TSAN)
  target_link_options(kiln_rt_shared PRIVATE -Wl,--no-undefined)
  if(KILN_TESTS)
    enable_testing()
    add_test(NAME runtime_library COMMAND ${CMAKE_COMMAND} -DLIBRARY=$<TARGET_FILE:kiln_rt_shared>
             -DARCHIVE=$<TARGET_FILE:kiln_rt_static>
             -P ${PROJECT_SOURCE_DIR}/cmake/check_runtime.cmake)
  endif()
endif()
