// Compiles the definition that argv[1] names in this process, from C++.
#include <cstdio>
#include <kiln/compile.h>

int main(int argc, char **argv) {
  const kiln_dim_value dims[] = {{"N", 4}};
  kiln_compile_options options = {};
  options.struct_size = sizeof options;
  options.dims = dims;
  options.n_dims = 1;
  kiln_model *model = nullptr;
  kiln_module *module = nullptr;
  kiln_diag *diag = kiln_diag_create();
  const bool right = argc == 2 && kiln_model_load(argv[1], &options, diag, &model) == KILN_OK &&
                     kiln_model_compile(model, diag, &module) == KILN_OK;
  std::printf("%s: %s\n", kiln_version(),
              right ? kiln_module_output(module, 0).name : kiln_diag_message(diag, 0));
  kiln_module_release(module);
  kiln_model_destroy(model);
  kiln_diag_destroy(diag);
  return right ? 0 : 1;
}
