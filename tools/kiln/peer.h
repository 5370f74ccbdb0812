// ONNX Runtime in a child process: Python imports it, reads inputs from files, and runs on request.
#ifndef KILN_TOOL_PEER_H
#define KILN_TOOL_PEER_H

#include "kiln.h"

#include <sys/types.h>

typedef struct peer {
  const options *o;
  pid_t child;
  FILE *to, *from;
  char folder[192]; // of its files; "" if there is none
  char version[64]; // of ONNX Runtime
  char model[4096]; // path of the model that it reads
} peer;

// Starts it on |model| with |threads|, to compute the module's outputs by name; if |expose|, on a
// copy of the model in which every value is an output. False after a message.
bool peer_start(peer *p, const options *o, const char *model, bool expose, int32_t threads,
                const kiln_module *module, const tensors *inputs);
// Runs once; gives milliseconds, negative after a message.
double peer_run(peer *p);
// The outputs of the last run, in the module's order. False after a message.
bool peer_outputs(peer *p, const kiln_module *module, tensors *out);
void peer_stop(peer *p); // and removes its files

#endif
