# Tests of what runs on GPUs. Those of OpenCL run on any device, PoCL's too, which makes the CPU one; CUDA's runtime is
# tested with a driver that plays one (test/gpu/fake_cuda.c). Tests that need a GPU have the label gpu; without what they
# need, all skip themselves.
if(CMOCKA)
  function(kiln_gpu_test name)
    add_executable(${name} ${PROJECT_SOURCE_DIR}/test/gpu/${name}.c)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/test ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
    target_link_libraries(${name} PRIVATE kiln_rt_static ${CMOCKA} m)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES TIMEOUT 3000 SKIP_RETURN_CODE 77 ${ARGN})
  endfunction()

  kiln_gpu_test(opencl_test ENVIRONMENT ASAN_OPTIONS=detect_leaks=0) # PoCL keeps what it allocated

  # The stand-in is found before a driver that is installed.
  add_library(fake_cuda SHARED ${PROJECT_SOURCE_DIR}/test/gpu/fake_cuda.c)
  set_target_properties(fake_cuda PROPERTIES OUTPUT_NAME cuda SUFFIX .so.1 C_VISIBILITY_PRESET default
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fake_cuda)
  kiln_gpu_test(cuda_test ENVIRONMENT LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/fake_cuda)
  kiln_gpu_test(cuda_ranges_test ENVIRONMENT LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/fake_cuda)
  add_dependencies(cuda_test fake_cuda)
  add_dependencies(cuda_ranges_test fake_cuda)
  if(NOT KILN_SANITIZE AND COMMAND kiln_test) # a sanitizer must come first in a process
    kiln_test(ort_memory 300 sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/ort/memory.py")
    set_property(TEST ort_memory APPEND PROPERTY ENVIRONMENT KILN_ORT=$<TARGET_FILE:kiln_ort> FAKE_CUDA_ANY=1
                 FAKE_CUDA_BYTES=100000000 LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/fake_cuda)
    if(TARGET ort_spy)
      set_property(TEST ort_memory APPEND PROPERTY ENVIRONMENT ORT_SPY=$<TARGET_FILE:ort_spy>)
    endif()
  endif()

  # NVIDIA's libraries on stand-ins, then on the GPU and the library of this machine.
  function(kiln_library_test name file suffix)
    add_library(fake_${name} SHARED ${PROJECT_SOURCE_DIR}/test/gpu/fake_${name}.c ${PROJECT_SOURCE_DIR}/test/gpu/fake_library.c)
    set_target_properties(fake_${name} PROPERTIES OUTPUT_NAME ${file} SUFFIX ${suffix} C_VISIBILITY_PRESET default
                          LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/fake_cuda)
    target_link_libraries(fake_${name} PRIVATE ${CMAKE_DL_LIBS} m)
    kiln_gpu_test(${name}_test ENVIRONMENT LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/fake_cuda)
    add_dependencies(${name}_test fake_cuda fake_${name})
    add_test(NAME gpu_${name} COMMAND ${name}_test)
    set_tests_properties(gpu_${name} PROPERTIES TIMEOUT 3000 SKIP_RETURN_CODE 77 LABELS gpu)
  endfunction()
  kiln_library_test(cublaslt cublasLt .so.13)
  kiln_library_test(cudnn cudnn .so.9)

  # The measuring process, on the stand-in.
  kiln_gpu_test(worker_test ENVIRONMENT LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/fake_cuda)
  target_sources(worker_test PRIVATE ${PROJECT_SOURCE_DIR}/src/tune/worker.c)
  add_dependencies(worker_test fake_cuda fake_cublaslt fake_cudnn kiln_worker)

  # An OpenCL that fails as it is told, in front of the one that is installed.
  add_library(shaky_opencl SHARED ${PROJECT_SOURCE_DIR}/test/gpu/shaky_opencl.c)
  set_target_properties(shaky_opencl PROPERTIES OUTPUT_NAME OpenCL SUFFIX .so.1 C_VISIBILITY_PRESET default
                        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/shaky_opencl)
  target_link_libraries(shaky_opencl PRIVATE ${CMAKE_DL_LIBS})
  target_link_libraries(opencl_test PRIVATE ${CMAKE_DL_LIBS})
  add_dependencies(opencl_test shaky_opencl)
  add_test(NAME opencl_released COMMAND opencl_test)
  set_tests_properties(opencl_released PROPERTIES TIMEOUT 3000 SKIP_RETURN_CODE 77
                       ENVIRONMENT "LD_LIBRARY_PATH=${PROJECT_BINARY_DIR}/shaky_opencl;ASAN_OPTIONS=detect_leaks=0")
  if(TARGET tune_tune_test)
    target_compile_definitions(tune_tune_test PRIVATE SHAKY_OPENCL="${PROJECT_BINARY_DIR}/shaky_opencl")
    add_dependencies(tune_tune_test shaky_opencl kiln_worker)
  endif()
  if(TARGET module_horizontal_fusion_test)
    target_compile_definitions(module_horizontal_fusion_test PRIVATE FAKE_CUBLASLT="$<TARGET_FILE:fake_cublaslt>")
    add_dependencies(module_horizontal_fusion_test fake_cublaslt)
  endif()
endif()

if(TARGET kiln_tool)
  file(GLOB definitions CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/tc/*.tc)
  set(weighted ${PROJECT_SOURCE_DIR}/build/models) # where the Makefile makes them
  set(models)
  foreach(name resnet18_b1 mobilenet_v2_b1 vit_small_patch32_b1 bsrn_b1)
    if(EXISTS ${weighted}/${name}.onnx)
      list(APPEND models ${weighted}/${name}.onnx)
    endif()
  endforeach()
  # Models with kernels of libraries, on the stand-ins and on a GPU.
  set(library_test sh -c "[ -x .venv/bin/python ] || exit 77 && exec .venv/bin/python test/gpu/library.py \"$@\"" library.py
      $<TARGET_FILE:kiln_tool>)
  if(TARGET fake_cudnn)
    add_test(NAME library_models COMMAND ${library_test} ${PROJECT_BINARY_DIR}/fake_cuda $<TARGET_FILE:kiln_worker>
             WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
    set_tests_properties(library_models PROPERTIES TIMEOUT 6000 SKIP_RETURN_CODE 77 LABELS long)
    if(KILN_SANITIZE) # LeakSanitizer stops threads when a process ends, and crashes over NVRTC's
      set_property(TEST library_models APPEND PROPERTY ENVIRONMENT ASAN_OPTIONS=detect_leaks=0)
    endif()
  endif()
  add_test(NAME gpu_libraries COMMAND ${library_test} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR})
  set_tests_properties(gpu_libraries PROPERTIES TIMEOUT 900 SKIP_RETURN_CODE 77 LABELS gpu)

  add_test(NAME gpu_models COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/test/gpu/gpu_test.py $<TARGET_FILE:kiln_tool>
           ${definitions} ${PROJECT_SOURCE_DIR}/test/gpu/horizontal_fusion.tc ${PROJECT_SOURCE_DIR}/test/gpu/row_epilogue.tc
           ${PROJECT_SOURCE_DIR}/test/gpu/fused_tile.tc ${models})
  set_tests_properties(gpu_models PROPERTIES TIMEOUT 900 SKIP_RETURN_CODE 77 LABELS gpu)

  # The operators on the GPU, and what compute-sanitizer says of their kernels: minutes each.
  set(node_tests /usr/share/libonnx-testdata/data/node)
  if(IS_DIRECTORY ${node_tests})
    add_test(NAME gpu_nodes COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/test/models/nodes.py $<TARGET_FILE:kiln_tool>
             ${node_tests} ${PROJECT_BINARY_DIR}/nodes_cuda.json 832 --target=cuda)
    add_test(NAME gpu_nodes_f16 COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/test/models/nodes.py $<TARGET_FILE:kiln_tool>
             ${node_tests} ${PROJECT_BINARY_DIR}/nodes_cuda_f16.json 826 --target=cuda --dtype=f16 --rtol=1e-2 --atol=1e-2)
    set_tests_properties(gpu_nodes gpu_nodes_f16 PROPERTIES TIMEOUT 900 SKIP_RETURN_CODE 77 LABELS gpu)
    foreach(tool memcheck racecheck)
      add_test(NAME gpu_${tool} COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/test/gpu/sanitizer.py
               $<TARGET_FILE:kiln_tool> ${node_tests} ${tool})
      set_tests_properties(gpu_${tool} PROPERTIES TIMEOUT 3600 SKIP_RETURN_CODE 77 LABELS gpu)
    endforeach()
  endif()
endif()
