// Operators on sub-graphs, sequences and optional values: the walk over the graph lowers them
// itself (src/fission/traversal.h); these rows say which there are.
#include "fission/lower.h"

#define CONTROL "src/fission/flow/control.c"
#define SEQUENCE "src/fission/flow/sequence.c"

const kiln_op kiln_op_control[] = {
    {"", "If", 1, 0, NULL, NULL, CONTROL},
    {"", "Loop", 1, 0, NULL, NULL, CONTROL},
    {"", "Scan", 8, 0, NULL, NULL, CONTROL},
    {"ai.onnx.preview", "FlexAttention", 1, 0, NULL, NULL, CONTROL},
    {"", "SequenceEmpty", 11, 0, NULL, NULL, SEQUENCE},
    {"", "SequenceConstruct", 11, 0, NULL, NULL, SEQUENCE},
    {"", "SequenceInsert", 11, 0, NULL, NULL, SEQUENCE},
    {"", "SequenceErase", 11, 0, NULL, NULL, SEQUENCE},
    {"", "SequenceAt", 11, 0, NULL, NULL, SEQUENCE},
    {"", "SequenceLength", 11, 0, NULL, NULL, SEQUENCE},
    {"", "SequenceMap", 17, 0, NULL, NULL, SEQUENCE},
    {"", "SplitToSequence", 11, 0, NULL, NULL, SEQUENCE},
    {"", "ConcatFromSequence", 11, 0, NULL, NULL, SEQUENCE},
    {"", "Optional", 15, 0, NULL, NULL, SEQUENCE},
    {"", "OptionalGetElement", 15, 0, NULL, NULL, SEQUENCE},
    {"", "OptionalHasElement", 15, 0, NULL, NULL, SEQUENCE},
    {0},
};
