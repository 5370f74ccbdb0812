// Runs the module that argv[1] names, compiled of scale.tc for N = 4.
#include <kiln/module.h>
#include <stdio.h>

int main(int argc, char **argv) {
  float x[4] = {1, 2, 3, 4}, y[4] = {0};
  int64_t shape[1] = {4};
  const DLDataType f32 = {kDLFloat, 32, 1};
  DLTensor in = {0}, out = {0};
  in.data = x, out.data = y;
  in.device.device_type = out.device.device_type = kDLCPU;
  in.ndim = out.ndim = 1;
  in.dtype = out.dtype = f32;
  in.shape = out.shape = shape;
  const DLTensor *inputs[] = {&in};
  DLTensor *outputs[] = {&out};
  kiln_module *module = NULL;
  kiln_session *session = NULL;
  const int right = argc == 2 && kiln_module_load(argv[1], NULL, &module) == KILN_OK &&
                    kiln_session_create(module, NULL, NULL, &session) == KILN_OK &&
                    kiln_session_run(session, 1, inputs, 1, outputs, NULL) == KILN_OK;
  kiln_session_destroy(session);
  kiln_module_release(module);
  printf("%g %g %g %g\n", y[0], y[1], y[2], y[3]);
  return !right || y[3] != 9;
}
