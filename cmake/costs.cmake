# Which tests are begun first where no run before says it (ctest's costs): those that take longest,
# so that none is left alone at the end. Seconds of processor time, about; the others take less.
set(kiln_test_costs
    pages=85 concats=58 tile_gpu_wgmma_test=45 python=41 tile_gpu_test=27 contrib=27 onnx_nodes_opencl=25
    tile_gpu_fused_tile_test=24 gpu_emit_test=24 amalgamation=24 onnx_nodes=23 install=22 symbolic_nodes=21 classical=21
    ort_memory=21 ranges=21 travel=21 models=20 safe_softmax=20 tile_gpu_flash_attention_test=19 views=19
    driver_allocation_test=17 same_bytes=16 trust=16 exact=16 onnx_nodes_simulator=15 onnx_nodes_simulator_f16=15
    opencl_released=15 fuzz_notation=15 naive=14 schedule_property_test=14 source_format=14 rewrite_rules_test=14
    quantized=13 schedule_compiled_test=13 gpu_instr_test=13 indices=13 large=13 tile_gpu_mutations_test=13
    tile_winograd_test=12 cpu_random_test=12 driver_dtypes_test=12 tile_attention_test=11 cpu_emit_test=11 llm_example=11
    llm_serve=11 needs_oracle=11 limits=10 orchestrate_program_test=10 ort_plans=10 tile_polyhedral_grid_test=10
    tc_kernels=10)
foreach(row ${kiln_test_costs})
  string(REPLACE "=" ";" row ${row})
  list(GET row 0 name)
  list(GET row 1 seconds)
  if(TEST ${name})
    set_tests_properties(${name} PROPERTIES COST ${seconds})
  endif()
endforeach()
