# Which tests are begun first where no run before says it (ctest's costs): those that take longest,
# so that none is left alone at the end. Seconds of processor time, about; the others take less.
set(kiln_test_costs
    tile_gpu_wgmma_test=50 tile_gpu_flash_attention_test=31 ranges=29 onnx_nodes=26 tile_gpu_row_epilogue_test=25
    tile_winograd_test=23 tile_gpu_test=23 onnx_nodes_opencl=23 gpu_emit_test=22
    tune_tune_test=21 models=20 tile_gpu_b2b_gemm_test=17 travel=17 naive=15
    schedule_compiled_test=15 tile_attention_test=15 driver_allocation_test=14
    schedule_property_test=14 tile_gpu_norm_prologue_test=13 driver_dtypes_test=13 exact=12 trust=12
    needs_oracle=12 quantized=12 large=12 rewrite_rules_test=12 tile_gpu_simt_fma_test=12
    gpu_instr_test=11 source_format=10 indices=10 dynamic=10 symbolic=10 computed_indices=10
    orchestrate_program_test=9 tc_kernels=9)
foreach(row ${kiln_test_costs})
  string(REPLACE "=" ";" row ${row})
  list(GET row 0 name)
  list(GET row 1 seconds)
  if(TEST ${name})
    set_tests_properties(${name} PROPERTIES COST ${seconds})
  endif()
endforeach()
