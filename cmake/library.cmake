# What --tune runs kernels in: a process of its own, which the library looks for from where it is installed.
file(RELATIVE_PATH kiln_worker_from_lib ${CMAKE_INSTALL_FULL_LIBDIR} ${CMAKE_INSTALL_FULL_LIBEXECDIR}/kiln/kiln-worker)
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/tune/worker.c PROPERTIES
                            COMPILE_DEFINITIONS KILN_WORKER_FROM_HERE="${kiln_worker_from_lib}")
add_executable(kiln_worker ${PROJECT_SOURCE_DIR}/src/worker/worker.c)
set_target_properties(kiln_worker PROPERTIES OUTPUT_NAME kiln-worker)
target_include_directories(kiln_worker PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(kiln_worker PRIVATE kiln_rt_static)

# libkiln: the compiler and the runtime in one shared library, for the bindings.
set(kiln_floors driver explain tune verify dynamic module model orchestrate polyhedral fuse transform template price tile schedule ops fission tc rewrite onnx sim gpu c cpu target runtime backend analysis ir support)
set(kiln_floor_libs)
foreach(floor ${kiln_floors})
  if(TARGET kiln_${floor})
    list(APPEND kiln_floor_libs kiln_${floor})
  endif()
endforeach()
set(driver_sources)
set(kiln_below ${kiln_floor_libs})
list(REMOVE_ITEM kiln_below kiln_runtime)
foreach(room driver explain tune verify dynamic module model) # which have functions of the interface
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${room}/*.c)
  list(APPEND driver_sources ${sources})
  list(REMOVE_ITEM kiln_below kiln_${room})
endforeach()
add_library(kiln_lib SHARED ${driver_sources} ${runtime_sources})
set_target_properties(kiln_lib PROPERTIES OUTPUT_NAME kiln EXPORT_NAME kiln VERSION ${KILN_ABI} SOVERSION ${KILN_ABI})
add_library(kiln::kiln ALIAS kiln_lib)
add_dependencies(kiln_lib kiln_worker)
target_include_directories(kiln_lib PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>
                           PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(kiln_lib PRIVATE -Wl,--start-group ${kiln_below} -Wl,--end-group
                      ${HWLOC} ${SQLITE} ${CMAKE_DL_LIBS} pthread m)
target_link_options(kiln_lib PRIVATE -Wl,--version-script=${PROJECT_SOURCE_DIR}/cmake/exports.map -Wl,--gc-sections
                    -Wl,-z,pack-relative-relocs) # LLVM's take 44 KB so, and 3.7 MB as a table: all of it is read at the start

# The command sees include/kiln only. It is linked with the runtime; the compiler is loaded from libkiln.so beside it.
file(GLOB tool_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tools/kiln/*.c)
# The page of `kiln report`, as arrays of bytes: its frame, its style, and its scripts as one.
set(page_folder ${PROJECT_SOURCE_DIR}/tools/kiln/report)
set(page_scripts data parts overview graph kernels roofline timeline traffic statements search main)
list(TRANSFORM page_scripts PREPEND ${page_folder}/)
list(TRANSFORM page_scripts APPEND .js)
set(page ${page_folder}/report.html ${page_folder}/report.css)
set(page_made ${PROJECT_BINARY_DIR}/report_page_made.c)
add_executable(embed ${PROJECT_SOURCE_DIR}/cmake/embed.c)
add_custom_command(OUTPUT ${page_made} COMMAND embed ${page_made} ${page} --join report_js ${page_scripts}
                   DEPENDS embed ${page} ${page_scripts} COMMENT "Embedding the page of reports" VERBATIM)
list(APPEND tool_sources ${page_made})
add_executable(kiln_tool ${tool_sources})
set_target_properties(kiln_tool PROPERTIES OUTPUT_NAME kiln EXPORT_NAME command)
target_include_directories(kiln_tool PRIVATE ${PROJECT_SOURCE_DIR}/include)
target_compile_definitions(kiln_tool PRIVATE KILN_VERSION="${PROJECT_VERSION}")
file(RELATIVE_PATH kiln_lib_from_bin ${CMAKE_INSTALL_FULL_BINDIR} ${CMAKE_INSTALL_FULL_LIBDIR})
set_source_files_properties(${PROJECT_SOURCE_DIR}/tools/kiln/compiler.c PROPERTIES COMPILE_DEFINITIONS
                            "KILN_SONAME=\"libkiln.so.${KILN_ABI}\";KILN_LIBRARY_FROM_HERE=\"${kiln_lib_from_bin}\"")
target_link_libraries(kiln_tool PRIVATE kiln_rt_static jansson ${CMAKE_DL_LIBS} m)
add_dependencies(kiln_tool kiln_lib)
add_executable(kiln::command ALIAS kiln_tool)
