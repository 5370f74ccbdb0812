# What --tune runs kernels in: a process of its own.
add_executable(kiln_worker ${CMAKE_SOURCE_DIR}/src/worker/worker.c)
set_target_properties(kiln_worker PROPERTIES OUTPUT_NAME kiln-worker)
target_include_directories(kiln_worker PRIVATE ${CMAKE_SOURCE_DIR}/include ${CMAKE_SOURCE_DIR}/src)
target_link_libraries(kiln_worker PRIVATE kiln_rt_static)

# libkiln: the compiler and the runtime in one shared library, for the bindings.
if(TARGET kiln_driver)
  file(GLOB driver_sources CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/driver/*.c)
  set(kiln_below ${kiln_floor_libs})
  list(REMOVE_ITEM kiln_below kiln_driver kiln_runtime)
  add_library(kiln_lib SHARED ${driver_sources} ${runtime_sources})
  set_target_properties(kiln_lib PROPERTIES OUTPUT_NAME kiln)
  add_dependencies(kiln_lib kiln_worker)
  target_include_directories(kiln_lib PUBLIC ${CMAKE_SOURCE_DIR}/include PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_link_libraries(kiln_lib PRIVATE -Wl,--start-group ${kiln_below} -Wl,--end-group
                        ${SQLITE} ${CMAKE_DL_LIBS} pthread m)
  target_link_options(kiln_lib PRIVATE -Wl,--version-script=${CMAKE_SOURCE_DIR}/cmake/libkiln.map -Wl,--gc-sections
                      -Wl,-z,pack-relative-relocs) # LLVM's take 44 KB so, and 3.7 MB as a table: all of it is read at the start
endif()
