# Tests through the command and of the sources; the unit tests are in targets.cmake. What needs the Python environment
# of `make test` (.venv) or the models' weights (build/models) is left out where they are not.
find_package(Python3 REQUIRED COMPONENTS Interpreter)
enable_testing()

# |seconds|: more than it takes on an idle machine of two cores. Limits are there to end what hangs: ten times that, since
# no test may fail because the machine is busy.
function(kiln_test name seconds)
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  math(EXPR limit "10 * ${seconds}")
  set_tests_properties(${name} PROPERTIES TIMEOUT ${limit} SKIP_RETURN_CODE 77
                       ENVIRONMENT KILN_CACHE_DIR=) # what is tested is compiled
endfunction()

# For programs that open libraries with a sanitizer in them, whose own library must come first.
set(asan_first)
if(KILN_SANITIZE)
  execute_process(COMMAND ${CMAKE_C_COMPILER} -print-file-name=libasan.so OUTPUT_VARIABLE asan_library
                  OUTPUT_STRIP_TRAILING_WHITESPACE)
  set(asan_first --sanitizer ${asan_library})
endif()

kiln_test(source_includes 60 ${Python3_EXECUTABLE} tools/check_includes.py)
kiln_test(source_targets 60 ${Python3_EXECUTABLE} tools/check_targets.py)
kiln_test(source_names 60 ${Python3_EXECUTABLE} tools/check_names.py)
kiln_test(source_numbers 60 ${Python3_EXECUTABLE} tools/check_numbers.py)
if(TARGET kiln_driver AND NOT KILN_SANITIZE AND NOT KILN_TSAN AND NOT KILN_COVERAGE) # whose objects call much else
  kiln_test(source_circles 60 ${Python3_EXECUTABLE} tools/check_circles.py ${PROJECT_BINARY_DIR} --most 4)
endif()
kiln_test(source_format 120 tools/check_format.sh)
kiln_test(source_headers 120 tools/check_headers.sh ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER})
kiln_test(source_dlpack 120 ${Python3_EXECUTABLE} test/tool/dlpack.py ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER})
if(NOT KILN_SANITIZE)
  kiln_test(source_clang 300 tools/check_clang.sh)
  set_tests_properties(source_clang PROPERTIES LABELS long)
endif()

# The example's warnings are errors, too: users copy it.
add_executable(llm_generate ${PROJECT_SOURCE_DIR}/examples/llm/generate.c)
target_link_libraries(llm_generate PRIVATE kiln_rt_shared m)

if(TARGET kiln_tool)
  kiln_test(definitions 300 ${Python3_EXECUTABLE} test/cli/tc.py $<TARGET_FILE:kiln_tool>)
  kiln_test(tc_kernels 300 ${Python3_EXECUTABLE} test/examples/tc_kernels.py $<TARGET_FILE:kiln_tool>)
  kiln_test(halide 300 ${Python3_EXECUTABLE} test/examples/halide.py $<TARGET_FILE:kiln_tool>)
  kiln_test(stream_example 60 $<TARGET_FILE:kiln_tool> tc examples/stream/attention.tc --size H=3 --size M=100
            --size N=192 --size D=64 --size E=32 --schedule examples/stream/attention.schedule --reference)
  kiln_test(bad_input 600 ${Python3_EXECUTABLE} test/error/bad_input.py $<TARGET_FILE:kiln_tool>)
  kiln_test(report 120 ${Python3_EXECUTABLE} test/cli/report.py $<TARGET_FILE:kiln_tool>)
  kiln_test(trust 600 ${Python3_EXECUTABLE} test/cli/trust.py $<TARGET_FILE:kiln_tool>)
  if(NOT KILN_SANITIZE) # whose shadow takes more address space than any of these limits
    kiln_test(limits 600 ${Python3_EXECUTABLE} test/cli/limits.py $<TARGET_FILE:kiln_tool>)
  endif()
  set(node_tests /usr/share/libonnx-testdata/data/node)
  if(IS_DIRECTORY ${node_tests})
    set(nodes ${Python3_EXECUTABLE} test/models/nodes.py $<TARGET_FILE:kiln_tool> ${node_tests})
    # How many must pass: what does, or just below; raised when more does. The last takes minutes.
    kiln_test(onnx_nodes 600 ${nodes} ${PROJECT_BINARY_DIR}/nodes.json 904)
    kiln_test(onnx_nodes_simulator 600 ${nodes} ${PROJECT_BINARY_DIR}/nodes_simulator.json 904 --target=sim:cuda:sm_90a)
    kiln_test(onnx_nodes_simulator_f16 600 ${nodes} ${PROJECT_BINARY_DIR}/nodes_simulator_f16.json 873 --target=sim:cuda:sm_90a
              --dtype=f16 --rtol=1e-2 --atol=1e-2) # numbers that halves do not hold are wrong
    kiln_test(onnx_nodes_opencl 300 ${nodes} ${PROJECT_BINARY_DIR}/nodes_opencl.json 200
              --target=opencl -k "test_[b-g]*")
    kiln_test(onnx_nodes_opencl_all 1500 ${nodes} ${PROJECT_BINARY_DIR}/nodes_opencl_all.json 904 --target=opencl)
    set_tests_properties(onnx_nodes_opencl_all PROPERTIES LABELS long)
  endif()
  kiln_test(onnx_nodes_newest 900 test/models/newest_nodes.sh $<TARGET_FILE:kiln_tool> ${PROJECT_BINARY_DIR} 1839)
  set_tests_properties(onnx_nodes_newest PROPERTIES LABELS long)
  if(NOT KILN_SANITIZE) # libraries of Python's without it come first
    # With dimensions left symbolic: a few of the tests of an ONNX release; make test-symbolic: all of the newest package.
    if(IS_DIRECTORY ${node_tests})
      kiln_test(symbolic_nodes 300 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/symbolic_nodes.py $*" sh
                ${PROJECT_BINARY_DIR} ${node_tests} --share 8 --percent 75)
    endif()
  endif()
  kiln_test(contrib 900 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/contrib.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(few_bits 300 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/few_bits.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(classical 300 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/classical.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(counted 300 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/counted.py $0" $<TARGET_FILE:kiln_tool>)
  if(NOT KILN_SANITIZE) # whose library a program must be linked with
    kiln_test(python 60 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python -m pytest -q python/tests")
    kiln_test(llm_example 300 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/examples/llm.py $0 $1 $2"
              $<TARGET_FILE:kiln_tool> $<TARGET_FILE:llm_generate> ${PROJECT_BINARY_DIR})
    kiln_test(llm_serve 120 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/examples/serve.py $0" ${PROJECT_BINARY_DIR})
    kiln_test(llm_serve_long 600 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/examples/serve.py $0 --steps 100000"
              ${PROJECT_BINARY_DIR})
    set_tests_properties(llm_serve_long PROPERTIES LABELS long)
    kiln_test(given_shapes 300 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/given_shapes.py $0" ${PROJECT_BINARY_DIR})
    kiln_test(loops 600 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/loops.py $0" ${PROJECT_BINARY_DIR})
    kiln_test(run_operands 300 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/run_operands.py $0" ${PROJECT_BINARY_DIR})
    kiln_test(kept_loops 600 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/kept_loops.py $0" ${PROJECT_BINARY_DIR})
    kiln_test(onnx_suite 300 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python python/tests/onnx_suite.py --at-least 1830")
    set_tests_properties(onnx_suite PROPERTIES LABELS long)
    set_property(TEST python onnx_suite APPEND PROPERTY ENVIRONMENT KILN_LIBRARY=${PROJECT_BINARY_DIR} PYTHONDONTWRITEBYTECODE=1)
  endif()
  if(NOT KILN_SANITIZE) # its limits of memory leave a sanitizer no room
    kiln_test(large 1800 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/large.py $0" $<TARGET_FILE:kiln_tool>)
  endif()
  kiln_test(indices 600 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/indices.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(rounding 600 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/rounding.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(exact 600 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/exact.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(naive 600 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/naive.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(expected 300 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/expected.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(empty 600 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/empty.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(reach 600 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/reach.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(views 600 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/views.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(safe_softmax 600 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/safe_softmax.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(concats 600 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/concats.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(known_scatters 600 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/known_scatters.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(quantized 300 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/quantized.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(dynamic 600 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/dynamic.py $0" $<TARGET_FILE:kiln_tool>)
  set(dynamic sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/dynamic.py \"$@\"" dynamic.py $<TARGET_FILE:kiln_tool>)
  kiln_test(dynamic_opencl 900 ${dynamic} opencl words image_mean batch_mean flattened)
  kiln_test(dynamic_opencl_all 6000 ${dynamic} opencl) # PoCL's compiler takes minutes
  kiln_test(gpu_dynamic 6000 ${dynamic} cuda)
  set(simulated sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/dynamic_simulated.py \"$@\"" simulated $<TARGET_FILE:kiln_lib>)
  kiln_test(dynamic_simulated 900 ${simulated} words batch_mean)
  kiln_test(dynamic_simulated_all 9000 ${simulated})
  set_tests_properties(dynamic_simulated_all PROPERTIES LABELS long)
  set_tests_properties(dynamic_opencl_all PROPERTIES LABELS long)
  set_property(TEST dynamic_opencl_all APPEND PROPERTY ENVIRONMENT KILN_TEST_SHARE=1)
  set_tests_properties(gpu_dynamic PROPERTIES LABELS gpu)
  kiln_test(symbolic 900 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/symbolic.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(computed_indices 900 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/computed_indices.py $0" $<TARGET_FILE:kiln_tool>)
  if(KILN_SANITIZE) # what Python keeps is no leak of ours, nor are 77 bytes of what OpenCL opens and closes
    set_property(TEST rounding views concats safe_softmax APPEND PROPERTY ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
    set_property(TEST dynamic dynamic_opencl dynamic_opencl_all dynamic_simulated dynamic_simulated_all symbolic computed_indices APPEND PROPERTY ENVIRONMENT LD_PRELOAD=${asan_library} ASAN_OPTIONS=detect_leaks=0)
  endif()
  if(NOT KILN_SANITIZE) # which must come first in a process
    kiln_test(ort_provider 30 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/ort/provider.py")
    set_property(TEST ort_provider APPEND PROPERTY ENVIRONMENT KILN_ORT=$<TARGET_FILE:kiln_ort>)
    if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64") # that stands in front of it; its thunks are x86-64's
      add_library(ort_spy MODULE ${PROJECT_SOURCE_DIR}/test/ort/spy.c)
      target_link_libraries(ort_spy PRIVATE ${CMAKE_DL_LIBS})
      set_property(TEST ort_provider APPEND PROPERTY ENVIRONMENT ORT_SPY=$<TARGET_FILE:ort_spy>)
    endif()
    kiln_test(ort_plans 300 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/ort/plans.py $0" $<TARGET_FILE:kiln_tool>)
    kiln_test(ort_gpu 300 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/ort/gpu.py")
    kiln_test(ort_opencl 60 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/ort/gpu.py")
    kiln_test(ort_nodes 1500 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/ort/nodes.py --least 82")
    set_property(TEST ort_gpu ort_opencl ort_nodes APPEND PROPERTY ENVIRONMENT KILN_ORT=$<TARGET_FILE:kiln_ort>)
    set_property(TEST ort_opencl APPEND PROPERTY ENVIRONMENT KILN_ORT_TARGET=opencl)
    set_tests_properties(ort_nodes PROPERTIES LABELS long)
  endif()
  kiln_test(fuzz_judge 300 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/fuzz/judge_test.py")
  set_tests_properties(fuzz_judge PROPERTIES LABELS long)
  kiln_test(fuzz_graphs 600 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/fuzz/graphs.py $*" sh
            --runs 20 --seed 13 --options default --library $<TARGET_FILE:kiln_lib> --out ${PROJECT_BINARY_DIR}/fuzz ${asan_first})
  kiln_test(fuzz_notation 600 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/fuzz/notation.py $*" sh
            --runs 60 --seed 1 --library $<TARGET_FILE:kiln_lib> --out ${PROJECT_BINARY_DIR}/fuzz ${asan_first})
  kiln_test(reduce 300 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/cli/reduce.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(static_library 120 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/cli/static_library.py $0" $<TARGET_FILE:kiln_tool>)
  set_property(TEST static_library APPEND PROPERTY ENVIRONMENT CC=${CMAKE_C_COMPILER} CXX=${CMAKE_CXX_COMPILER})
  kiln_test(modules 300 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/cli/modules.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(compare 300 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/cli/compare.py $0" $<TARGET_FILE:kiln_tool>)
  kiln_test(tools 60 ${Python3_EXECUTABLE} test/tool/graph.py ${PROJECT_BINARY_DIR})
  kiln_test(command 300 ${Python3_EXECUTABLE} test/cli/command.py $<TARGET_FILE:kiln_tool>)
  kiln_test(options 60 ${Python3_EXECUTABLE} test/cli/options.py $<TARGET_FILE:kiln_tool>)
  kiln_test(c_api 60 ${Python3_EXECUTABLE} tools/c_api.py --check)
  if(NOT KILN_SANITIZE AND NOT KILN_COVERAGE) # which export functions of their own
    kiln_test(abi 60 ${Python3_EXECUTABLE} tools/abi.py ${PROJECT_BINARY_DIR})
  endif()
  kiln_test(abi_tool 60 ${Python3_EXECUTABLE} test/tool/abi.py ${PROJECT_BINARY_DIR}/abi)
  kiln_test(version 60 ${Python3_EXECUTABLE} test/tool/version.py)
  kiln_test(pipeline_page 60 ${Python3_EXECUTABLE} tools/pipeline_page.py --check)
  if(NOT KILN_SANITIZE)
    kiln_test(pages 1200 ${Python3_EXECUTABLE} test/cli/pages.py $<TARGET_FILE:kiln_tool>)
  endif()
  if(NOT KILN_SANITIZE) # whose library a program must be linked with
    kiln_test(amalgamation 60 ${Python3_EXECUTABLE} test/cli/amalgamation.py $<TARGET_FILE:kiln_tool>)
    kiln_test(install 120 ${Python3_EXECUTABLE} test/cli/install.py ${CMAKE_COMMAND} ${PROJECT_BINARY_DIR})
    kiln_test(subproject 3600 ${Python3_EXECUTABLE} test/cli/install.py ${CMAKE_COMMAND} ${PROJECT_BINARY_DIR} --whole)
    set_tests_properties(subproject PROPERTIES LABELS long)
    set_property(TEST install subproject APPEND PROPERTY ENVIRONMENT CC=${CMAKE_C_COMPILER} CXX=${CMAKE_CXX_COMPILER})
  endif()
  kiln_test(travel 600 ${Python3_EXECUTABLE} test/cli/travel.py $<TARGET_FILE:kiln_tool>)
  kiln_test(codes_oracle 300 ${Python3_EXECUTABLE} test/oracle/codes.py $<TARGET_FILE:kiln_tool>)
  kiln_test(operators_doc 60 ${Python3_EXECUTABLE} tools/operators_doc.py --check $<TARGET_FILE:kiln_tool>)
  if(NOT KILN_SANITIZE)
    file(GLOB graphs CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/models/*.onnx)
    list(FILTER graphs EXCLUDE REGEX "_dyn\\.onnx$")
    kiln_test(arenas 600 ${Python3_EXECUTABLE} bench/memory.py --plan --kiln $<TARGET_FILE:kiln_tool> ${graphs})
    set_tests_properties(arenas PROPERTIES LABELS long)
    set(weighted ${PROJECT_SOURCE_DIR}/build/models) # where the Makefile makes them
    kiln_test(same_bytes 300 ${Python3_EXECUTABLE} test/cli/same.py $<TARGET_FILE:kiln_tool> ${weighted}/mobilenet_v2_b1.onnx
              ${weighted}/resnet18_b1.onnx ${weighted}/nerf_b1.onnx)
    kiln_test(models 900 test/models/models.sh ${PROJECT_BINARY_DIR})
    kiln_test(ranges 300 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/models/ranges.py $0 $1"
              $<TARGET_FILE:kiln_tool> ${PROJECT_BINARY_DIR}/models)
  endif()
endif()

# The parts of the command, without its main.
if(CMOCKA AND TARGET kiln_tool)
  set(tool_parts ${tool_sources})
  list(FILTER tool_parts EXCLUDE REGEX "/main\\.c$")
  foreach(name tool_test options_test)
    add_executable(${name} ${PROJECT_SOURCE_DIR}/test/tool/${name}.c ${tool_parts})
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include)
    target_compile_definitions(${name} PRIVATE KILN_VERSION="${PROJECT_VERSION}")
    target_link_libraries(${name} PRIVATE kiln_rt_static jansson ${CMAKE_DL_LIBS} ${CMOCKA} m)
    add_dependencies(${name} kiln_lib)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 1200)
  endforeach()
endif()
