// ONNX Runtime as a process of its own: Python imports it, reads the inputs from files, and runs
// when it is told to.
#ifndef KILN_TOOL_PEER_H
#define KILN_TOOL_PEER_H

#include "kiln.h"

#include <sys/types.h>

typedef struct peer {
  const options *o;
  pid_t child;
  FILE *to, *from;
  char folder[192]; // of its files; "" when there is none
  char version[64]; // of ONNX Runtime
  char model[4096]; // the path that it reads
} peer;

// Starts it on |model| with |threads|, to compute the module's outputs by their names; where
// |expose|, of a copy that has every value as an output. False after a message.
bool peer_start(peer *p, const options *o, const char *model, bool expose, int32_t threads,
                const kiln_module *module, const tensors *inputs);
// One run; the milliseconds that it took, less than 0 after a message.
double peer_run(peer *p);
// The outputs of the last run, as the module's are named. False after a message.
bool peer_outputs(peer *p, const kiln_module *module, tensors *out);
void peer_stop(peer *p); // and removes its files

#endif
