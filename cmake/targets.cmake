# Tests: one executable a file of test/unit/FLOOR/NAME_test.c, linked with the whole compiler.
enable_testing()
find_library(CMOCKA cmocka)
if(CMOCKA)
  file(GLOB_RECURSE unit_tests CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/unit/*_test.c)
  if(KILN_SANITIZE OR KILN_TSAN) # which are allocators themselves
    list(FILTER unit_tests EXCLUDE REGEX "/allocation_test\\.c$")
  endif()
  foreach(source ${unit_tests})
    file(RELATIVE_PATH name ${PROJECT_SOURCE_DIR}/test/unit ${source})
    string(REPLACE "/" "_" name ${name})
    string(REPLACE ".c" "" name ${name})
    add_executable(${name} ${source})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/test ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${name} PRIVATE -Wl,--start-group ${kiln_floor_libs} -Wl,--end-group ${CMOCKA} m)
    target_compile_definitions(${name} PRIVATE KILN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    if(NOT name MATCHES "allocation_test$") # which counts LLVM's allocations too
      set_target_properties(${name} PROPERTIES KILN_SHARED_LLVM ON)
    endif()
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 3000)
    if(KILN_SANITIZE) # a refused allocation is a message of ours, not the end; all takes some seven times as long
      set_tests_properties(${name} PROPERTIES TIMEOUT 6000)
      set(asan allocator_may_return_null=1)
      if(name MATCHES "^(module_horizontal_fusion|driver_gpu|tune_tune)_test$") # PoCL keeps what it allocated for its kernels
        string(APPEND asan ":detect_leaks=0")
      endif()
      set_tests_properties(${name} PROPERTIES ENVIRONMENT
        "ASAN_OPTIONS=${asan};LSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/test/leaks.txt:print_suppressions=0")
    endif()
  endforeach()
endif()

# What threads share, under ThreadSanitizer (make tsan): pool, sessions, tuning and compilation in parallel.
set(tsan_tests module_cache_test driver_concurrent_test driver_parallel_test runtime_dynamic_test runtime_session_test
    tune_measure_test tune_results_test)
if(KILN_TSAN AND CMOCKA)
  add_custom_target(tsan_tests DEPENDS ${tsan_tests})
  set_tests_properties(${tsan_tests} PROPERTIES LABELS tsan TIMEOUT 1200
                       ENVIRONMENT "TSAN_OPTIONS=suppressions=${PROJECT_SOURCE_DIR}/test/tsan.txt:halt_on_error=1")
endif()

# That test takes the C library's place as an allocator, and makes each allocation in an arena one.
if(TARGET driver_allocation_test)
  target_sources(driver_allocation_test PRIVATE ${PROJECT_SOURCE_DIR}/src/support/arena.c)
  target_compile_definitions(driver_allocation_test PRIVATE KILN_ARENA_FIRST_BLOCK=64 KILN_ARENA_LARGEST_BLOCK=64)
endif()

# That test looks at code before LLVM's passes.
if(TARGET cpu_known_test)
  target_include_directories(cpu_known_test SYSTEM PRIVATE ${llvm_include})
endif()

# Fuzzers with a budget of some seconds; how to run them long, each says at its head.
file(GLOB fuzzers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/test/fuzz/*.c)
foreach(source ${fuzzers})
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${name} PRIVATE -Wl,--start-group ${kiln_floor_libs} -Wl,--end-group m)
  target_compile_definitions(${name} PRIVATE KILN_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 3000)
endforeach()

if(TARGET kiln_tool)
  add_test(NAME thin_command COMMAND ${PROJECT_SOURCE_DIR}/test/cli/thin.sh $<TARGET_FILE:kiln_tool>
           /usr/share/libonnx-testdata/data/node/test_add/model.onnx)
  set_tests_properties(thin_command PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 60)
  if(NOT KILN_SANITIZE)
    set(weighted ${PROJECT_SOURCE_DIR}/build/models) # where the Makefile makes them
    add_test(NAME memory COMMAND ${PROJECT_SOURCE_DIR}/test/cli/memory.py $<TARGET_FILE:kiln_tool>
             ${weighted}/resnet18_b1.onnx ${weighted}/mobilenet_v2_b1.onnx)
    set_tests_properties(memory PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 3000)
  endif()
endif()

include(${PROJECT_SOURCE_DIR}/test/oracle/CMakeLists.txt)

# GEMM beside OpenBLAS and oneDNN.
find_library(OPENBLAS openblas PATH_SUFFIXES openblas-pthread)
find_library(DNNL dnnl)
if(TARGET kiln_driver AND OPENBLAS AND DNNL AND CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64")
  add_executable(gemm_bench bench/gemm.c)
  target_include_directories(gemm_bench PRIVATE ${PROJECT_SOURCE_DIR}/include /usr/include/x86_64-linux-gnu/openblas-pthread)
  target_link_libraries(gemm_bench PRIVATE -Wl,--start-group kiln_driver ${kiln_floor_libs} -Wl,--end-group ${OPENBLAS} ${DNNL} m)
endif()

# Predicted traffic beside counted.
if(TARGET kiln_driver)
  add_executable(traffic_bench bench/traffic.c)
  target_include_directories(traffic_bench PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(traffic_bench PRIVATE -Wl,--start-group kiln_driver ${kiln_floor_libs} -Wl,--end-group m)
  add_executable(rank_bench bench/rank.c)
  target_include_directories(rank_bench PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(rank_bench PRIVATE -Wl,--start-group kiln_driver ${kiln_floor_libs} -Wl,--end-group m)
  add_executable(gpu_rank_bench bench/gpu_rank.c)
  target_include_directories(gpu_rank_bench PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(gpu_rank_bench PRIVATE -Wl,--start-group kiln_driver ${kiln_floor_libs} -Wl,--end-group m)
endif()

# What the runtime itself costs.
add_executable(wakeup_bench bench/wakeup.c)
target_include_directories(wakeup_bench PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(wakeup_bench PRIVATE kiln_rt_static)
